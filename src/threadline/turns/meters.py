"""What a turn may use and has used: the model it may ask, the budget it must fit, the tokens it reported.

A request is checked before it is stored. When the turn runs, a meter counts what its agent reports; once a budget is
used up it ends the turn before its next call of a model, and keeps what was shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec

from threadline.core import events
from threadline.core.channels import Agent as AgentRow
from threadline.core.errors import AgentFailed, BudgetExceeded, InvalidInput, quote
from threadline.core.events import Event, Usage
from threadline.core.messages import NewMessage
from threadline.core.threads import Scope, Thread
from threadline.core.turns import Surface
from threadline.core.usage import NO_BUDGET, Charge, Price, UsageKind, bound_usage, find_price
from threadline.ports import Admission, Spending, SpendingRefusal, Store

log = logging.getLogger("threadline.turns")

# A tool's result is kept after the budget is used up: the tool ran, and its call must not stay open.
_CALLS_A_MODEL = (
    events.StepStart,
    events.TextDelta,
    events.ReasoningDelta,
    events.ToolInputStart,
    events.ToolCall,
)


class AgentRows(Protocol):
    async def row(self, scope: Scope, agent_id: str) -> AgentRow | None: ...


class Asks(Protocol):
    """A request, as far as it decides about its model and its cost."""

    @property
    def surface(self) -> Surface: ...
    @property
    def thread_id(self) -> str | None: ...
    @property
    def state_key(self) -> str | None: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def message(self) -> NewMessage | None: ...


class Meter:
    """Counts what one run of an agent uses."""

    def __init__(self, spending: Spending, price: Price | None, admission: Admission | None) -> None:
        self._spending = spending
        self._price = price
        self._admission = admission
        self._refusal: SpendingRefusal | None = None

    @property
    def charge(self) -> Charge:
        return self._spending.charge

    async def add(self, event: Event) -> None:
        """Call it before the event is shown. AgentFailed if the budget was used up before this event."""
        if isinstance(event, Usage):
            self._count(event)
            if self._admission is not None:
                self._refusal = await self._admission.check(self._spending)
        elif self._refusal is not None and isinstance(event, _CALLS_A_MODEL):
            raise _ended(self._refusal)

    def _count(self, event: Usage) -> None:
        before = self.charge.usage
        summed = bound_usage(Usage(*(getattr(before, name) + getattr(event, name) for name in _COUNTS)))
        cost = None if self._price is None else self._price.cost_nanos(summed)
        charge = msgspec.structs.replace(self.charge, usage=summed, cost_nanos=cost)
        self._spending = msgspec.structs.replace(self._spending, charge=charge)


_COUNTS = Usage.__struct_fields__


class Meters:
    """Checks requests and opens meters. Without an admission there are no budgets."""

    def __init__(
        self,
        store: Store,
        agents: AgentRows,
        default_agent: str,
        admission: Admission | None = None,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self._store = store
        self._agents = agents
        self._default_agent = default_agent
        self._admission = admission
        self._prices = prices or {}

    async def check_request(self, scope: Scope, request: Asks) -> None:
        """InvalidInput for a model that the agent does not offer; BudgetExceeded. Call it before storing. A repeated
        request passes: it gets the turn that was stored first, whatever has been used since."""
        if request.model is None and self._admission is None:
            return
        thread = None if request.agent_id is not None else await self._find_thread(scope, request)
        agent_id = request.agent_id or (thread.agent_id if thread is not None else None) or self._default_agent
        row = await self._agents.row(scope, agent_id)
        check_model(row, request.model)
        if self._admission is not None:
            model = request.model or choose_model(None, thread, row, agent_id)
            spending = self._spending(scope, request.surface, agent_id, row, model)
            refusal = await self._admission.check(spending)
            if refusal is not None and not await self._is_repeated(scope, request):
                raise BudgetExceeded(refusal.reason, refusal.budget, refusal.resets_at)

    async def _is_repeated(self, scope: Scope, request: Asks) -> bool:
        session = self._store.scoped(scope)
        if request.key is not None and await session.turn_by_key(request.key) is not None:
            return True
        if request.message is None or request.message.id is None:
            return False
        thread = await self._find_thread(scope, request)
        return thread is not None and await session.message(thread.id, request.message.id) is not None

    async def _find_thread(self, scope: Scope, request: Asks) -> Thread | None:
        session = self._store.scoped(scope)
        if request.thread_id is not None:
            return await session.thread(request.thread_id)
        return None if request.state_key is None else await session.thread_by_key(request.state_key)

    async def open_meter(
        self,
        scope: Scope,
        agent_id: str,
        row: AgentRow | None,
        model: str | None,
        surface: Surface,
        turn_id: str | None = None,
        *,
        kind: UsageKind = "turn",
    ) -> Meter:
        """For an agent that is about to be called. AgentFailed for a model it does not offer, and without a budget."""
        try:
            check_model(row, model)
        except InvalidInput as exc:
            raise AgentFailed(str(exc)) from exc
        spending = self._spending(scope, surface, agent_id, row, model, turn_id, kind=kind)
        if self._admission is not None and (refusal := await self._admission.check(spending)) is not None:
            raise _ended(refusal)
        return Meter(spending, find_price(self._prices, spending.charge.provider, model), self._admission)

    def _spending(
        self,
        scope: Scope,
        surface: Surface,
        agent_id: str,
        row: AgentRow | None,
        model: str | None,
        turn_id: str | None = None,
        *,
        kind: UsageKind = "turn",
    ) -> Spending:
        charge = Charge(agent_id, None if row is None else row.provider, model, kind=kind)
        return Spending(
            tenant_id=scope.tenant_id, user_id=scope.user_id, surface=surface, charge=charge, turn_id=turn_id
        )

    async def record(self, scope: Scope, surface: Surface, charge: Charge, turn_id: str | None = None) -> None:
        """Tells the admission what was used, after it was stored."""
        if self._admission is None:
            return
        spending = Spending(
            tenant_id=scope.tenant_id, user_id=scope.user_id, surface=surface, charge=charge, turn_id=turn_id
        )
        try:
            await self._admission.record(spending)
        except Exception:
            # The turn has ended and its reply is stored: a failure of the host's billing must not fail it.
            log.exception("usage not recorded by the admission", extra={"turn_id": turn_id})


def allowed_models(row: AgentRow | None) -> tuple[str, ...]:
    """The models that may be chosen for the agent, its own first; () if any may be."""
    listed = None if row is None else row.settings.get("models")
    if row is None or not isinstance(listed, list | tuple) or not listed:
        return ()
    return tuple(dict.fromkeys([*([row.model] if row.model else []), *map(str, listed)]))


def check_model(row: AgentRow | None, model: str | None) -> None:
    """InvalidInput for a model that is not among those that the agent's settings list."""
    allowed = allowed_models(row)
    if model is not None and allowed and model not in allowed:
        raise InvalidInput(f"`model` must be one of {', '.join(allowed)}, got {quote(model)}")


def choose_model(wanted: str | None, thread: Thread | None, row: AgentRow | None, agent_id: str) -> str | None:
    """The model of the request, else the thread's, else the agent's. A thread's model is a model of its own agent."""
    if wanted is not None:
        return wanted
    if thread is not None and thread.model is not None and thread.agent_id in (None, agent_id):
        return thread.model
    return None if row is None else row.model


def _ended(refusal: SpendingRefusal) -> AgentFailed:
    return AgentFailed(f"{NO_BUDGET}{refusal.reason}")

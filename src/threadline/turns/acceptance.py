"""Accept and finish: the two commits around every turn, whatever surface it came from.

`accept` checks, seals and stores a request and its turn in one commit, and only then answers the caller. `finish`
stores the reply and the turn's end in one commit. Between the two a turn belongs to the process that holds its lease;
the fence keeps a process that lost the lease from writing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from threadline.core.client_tools import ClientTool, stored_form
from threadline.core.errors import (
    DuplicateId,
    GuardRefused,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StoreFailed,
)
from threadline.core.ids import check_id, check_state_key, check_text, new_id
from threadline.core.messages import Message, NewMessage
from threadline.core.parts import FilePart, TextPart, decode
from threadline.core.reply_limits import cut_parts
from threadline.core.sealing import METADATA_LIMIT, Sealed, Sealer
from threadline.core.threads import NewThread, Scope
from threadline.core.turn_commits import (
    Accepted,
    AcceptRefusal,
    ArrivalClaim,
    FinishRefusal,
    ReplyDelivery,
    TurnAcceptance,
)
from threadline.core.turn_options import TurnOptions, stored_options
from threadline.core.turns import (
    ANSWERED_ELSEWHERE,
    ASKED_BY,
    Chunk,
    Policy,
    Surface,
    Turn,
    TurnEnd,
    reply_id,
    root_turn_id,
)
from threadline.core.usage import Charge
from threadline.observability.metrics import Metrics
from threadline.ports import Guard, Store, Transaction
from threadline.threads.field_checks import admit_model, admit_options, admit_thread
from threadline.threads.user_threads import first_title
from threadline.turns.leases import Holder
from threadline.turns.meters import Meters
from threadline.turns.refusals import find_repeated, refusal_error

log = logging.getLogger("threadline.turns")

STOPPED = "stopped by the user"
WENT_AWAY = "the process that ran it went away"
"""The error that a turn's row has after such an end."""
_MAX_MODEL_LABELS = 50

POLICIES: Mapping[Surface, Policy] = {
    "web": "reject",
    "api": "reject",
    "cli": "queue",
    "slack": "queue",
    "telegram": "queue",
    "whatsapp": "queue",
    "matrix": "queue",
}

RenderReply: TypeAlias = Callable[[Turn, str, bytes | None], ReplyDelivery | None]
"""What a platform is sent when a turn has ended, from the ended turn, the text of its reply, and the reply's parts if
there is a reply."""


class TurnRequest(msgspec.Struct, frozen=True):
    """A request as a surface read it. Without a thread id, the state key finds the thread or a new one is created.
    `replaces` is the id of the user message that this one replaces: see `TurnAcceptance`."""

    message: NewMessage
    surface: Surface
    thread_id: str | None = None
    replaces: str | None = None
    state_key: str | None = None
    agent_id: str | None = None
    model: str | None = None
    key: str | None = None
    policy: Policy | None = None
    client_tools: tuple[ClientTool, ...] = ()
    options: TurnOptions = TurnOptions()
    new_thread: NewThread = NewThread()
    asked_by: str | None = None
    """The user who asks, in a thread of another user."""


class Ending(msgspec.Struct, frozen=True):
    """The result of a run: how it ended, the reply if there is one, and the chunks of its stream not stored yet."""

    end: TurnEnd
    reply: NewMessage | None
    chunks: list[Chunk]
    tokens: int = 0


class Turns:
    """Accepts and finishes turns in any scope."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        guard: Guard | None = None,
        deliveries: Mapping[Surface, RenderReply] | None = None,
        *,
        meters: Meters | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._meters = meters
        self._store = store
        self._sealer = sealer
        self._guard = guard
        self._deliveries = deliveries or {}
        metrics = metrics or Metrics()
        self._ended = metrics.counter("threadline_turns_total", "Turns that ended.", ("status", "surface"))
        self._lasted = metrics.histogram(
            "threadline_turn_duration_seconds", "From a request's acceptance to its turn's end.", ("surface",)
        )
        self._tokens = metrics.counter(
            "threadline_tokens_total", "Tokens that agents say they used.", ("direction", "model")
        )
        self._known_models: set[str] = set()

    async def accept(self, scope: Scope, request: TurnRequest, holder: Holder | None = None) -> Accepted:
        """Stores the request and its turn, once. RoleRefused, GuardRefused, BudgetExceeded, InvalidInput, NotFound:
        nothing is stored. KeyReused: the key came with another request. TurnRunning: another turn of the thread is
        active and the policy is to reject. A message that is sent again with the same id, content and agent is the turn
        it had, with or without a key. A given holder leases it at once if no other turn is active: see
        `Accepted.leased`."""
        scope.require("member")
        new = self.seal(scope, request)
        await self.check(scope, request)
        return self.require_accepted(await self.store(scope, new, holder), new)

    async def store(self, scope: Scope, new: TurnAcceptance, holder: Holder | None) -> Accepted | AcceptRefusal:
        """Stores a sealed request for its holder. A turn of the thread that no process runs any more is ended first, so
        that the log has its reply before the next question."""
        if holder is None:
            return await self._store_once(scope, new)
        new = msgspec.structs.replace(new, lease=holder.lease, must_check_holder=True)
        outcome = await self._store_once(scope, new)
        if not isinstance(outcome, AcceptRefusal) or outcome.reason != "turn_running" or outcome.turn_id is None:
            return outcome
        await holder.make_way(scope, outcome.turn_id, interrupts=new.policy == "interrupt")
        return await self._store_once(scope, msgspec.structs.replace(new, must_check_holder=False))

    async def _store_once(self, scope: Scope, new: TurnAcceptance) -> Accepted | AcceptRefusal:
        session = self._store.scoped(scope)
        outcome = await session.accept_turn(new)
        if isinstance(outcome, AcceptRefusal):
            return await find_repeated(session, new, outcome) or outcome
        return outcome

    async def check(self, scope: Scope, request: TurnRequest) -> None:
        """RoleRefused, GuardRefused, BudgetExceeded or InvalidInput (model) if this user may not ask this."""
        scope.require("member")
        if self._guard is not None and (reason := await self._guard.check(request.message.text, scope)):
            raise GuardRefused(reason)
        if self._meters is not None:
            await self._meters.check_request(scope, request)

    def seal(self, scope: Scope, request: TurnRequest, *, arrival: ArrivalClaim | None = None) -> TurnAcceptance:
        """What the store is given. InvalidInput for a request that cannot be stored."""
        sealer = self.sealer_of(scope)
        message = self._seal_message(sealer, request)
        return TurnAcceptance(
            turn_id=new_id(),
            surface=request.surface,
            message=message,
            policy=request.policy or POLICIES[request.surface],
            thread_id=request.thread_id,
            new_thread=NewThread() if request.thread_id is not None else self._new_thread(sealer, request),
            replaces=request.replaces,
            agent_id=request.agent_id or None,
            model=None if request.model is None else admit_model(self._sealer, request.model),
            key=request.key,
            request_hash=_digest(request, message),
            seen={
                **stored_form(request.client_tools),
                **admit_options(sealer, request.options),
                **({} if request.asked_by is None else {ASKED_BY: request.asked_by}),
            },
            title=first_title([message]),
            arrival=arrival,
        )

    def _seal_message(self, sealer: Sealer, request: TurnRequest) -> Sealed:
        if request.message.role != "user":
            raise InvalidInput(f"a request must be a user message, got role {request.message.role!r}")
        if request.key is not None:
            check_id("key", request.key)
        if request.thread_id is not None:
            check_id("thread", request.thread_id)
        if request.state_key is not None:
            check_state_key(request.state_key)
        if request.replaces is not None:
            check_id("message", request.replaces)
        sealed = sealer.message(request.message)
        if not any(isinstance(part, FilePart) for part in decode(sealed.parts_json)):
            check_text("the message", sealed.text)
        return sealed

    def _new_thread(self, sealer: Sealer, request: TurnRequest) -> NewThread:
        wanted = msgspec.structs.replace(
            request.new_thread,
            state_key=request.state_key or request.new_thread.state_key,
            agent_id=request.new_thread.agent_id or request.agent_id,
        )
        return admit_thread(sealer, wanted)

    def require_accepted(self, outcome: Accepted | AcceptRefusal, new: TurnAcceptance) -> Accepted:
        """The stored turn; for a refusal, the error that tells a user why."""
        if isinstance(outcome, AcceptRefusal):
            raise refusal_error(outcome, new, self._sealer.limits.messages_per_thread)
        return outcome

    async def deny_in(self, tx: Transaction, new: TurnAcceptance, said: str) -> Accepted | None:
        """Stores a request that is denied (its status says how) and what the user is told, as a turn that has ended.
        None if it arrived before."""
        outcome = await tx.accept_turn(new)
        if isinstance(outcome, AcceptRefusal) and outcome.reason == "duplicate_arrival":
            return None
        denied = self.require_accepted(outcome, new)
        if denied.replayed:
            return denied
        reply = NewMessage(
            "assistant", (TextPart(said),), id=reply_id(new.turn_id), metadata={"status": denied.turn.status}
        )
        await tx.append(denied.thread.id, [self._sealer.message(reply)], turn_id=denied.turn.id)
        return denied

    async def find(self, scope: Scope, turn_id: str) -> Turn:
        """The turn as it is stored now. NotFound."""
        turn = await self._store.scoped(scope).turn(check_id("turn", turn_id))
        if turn is None:
            raise NotFound("turn", turn_id)
        return turn

    async def finish(self, scope: Scope, turn: Turn, ending: Ending) -> Turn | None:
        """Stores the reply and the end in one commit. None if another process has the turn by now, or it had ended:
        then nothing of this was stored. A reply that exceeds a limit is cut to what fits, one that cannot be stored at
        all is left out, and the turn ends as `dispatch_failed` with the reason: a turn never waits for its lease."""
        reply, end = self._seal_reply(self.sealer_of(scope), ending)
        is_own = turn.asked_by == turn.owner_id
        end = msgspec.structs.replace(end, is_counted=is_own)
        outcome = await self._finish(scope, turn, ending, end, reply)
        if isinstance(outcome, FinishRefusal) and outcome.reason in ("thread_full", "reply_known"):
            end = _failed(end, self._unstored_reason(outcome, turn))
            outcome = await self._finish(scope, turn, ending, end, None)
        if isinstance(outcome, FinishRefusal):
            return None
        self._count(outcome)
        if end.charge is not None:
            await self._record(asker_scope(scope, turn), turn, end.charge, is_counted=is_own)
        return outcome

    async def _record(self, asker: Scope, turn: Turn, charge: Charge, *, is_counted: bool) -> None:
        """What a turn used, for the user who asked. In another user's thread it is a commit of its own."""
        if not is_counted:
            try:
                await self._store.scoped(asker).count_usage(charge)
            except StoreFailed:
                log.warning("usage not counted", extra={"turn_id": turn.id})
        if self._meters is not None:
            await self._meters.record(asker, turn.surface, charge, turn.id)

    async def _finish(
        self, scope: Scope, turn: Turn, ending: Ending, end: TurnEnd, reply: Sealed | None
    ) -> Turn | FinishRefusal:
        return await self._store.scoped(scope).finish_turn(
            turn.id,
            turn.fence,
            end,
            reply=reply,
            chunks=ending.chunks,
            tokens=ending.tokens,
            delivery=await self._delivery(scope, turn, end, reply),
        )

    def _seal_reply(self, sealer: Sealer, ending: Ending) -> tuple[Sealed | None, TurnEnd]:
        reply, end = ending.reply, ending.end
        if reply is None:
            return None, end
        try:
            return sealer.message(reply), end
        except LimitExceeded as exc:
            exceeded = exc
        end = _failed(end, cut_reason(exceeded))
        kept = {} if exceeded.limit == METADATA_LIMIT else reply.metadata or {}
        cut = msgspec.structs.replace(reply, metadata={**kept, "status": end.status, "limit": exceeded.limit})
        try:
            return sealer.cut_message(cut, cut_parts), end
        except InvalidInput:
            # Not even the beginning of its first part fits.
            return None, end

    def _unstored_reason(self, refusal: FinishRefusal, turn: Turn) -> str:
        if refusal.reason == "reply_known":
            return str(DuplicateId("message", reply_id(turn.id)))
        limit = self._sealer.limits.messages_per_thread
        return f"the reply was not stored: {LimitExceeded('messages per thread', limit, limit + 1)}"

    def sealer_of(self, scope: Scope) -> Sealer:
        """The limits and the masker of the scope's tenant."""
        return self._sealer.for_tenant(scope.tenant_id)

    async def _delivery(self, scope: Scope, turn: Turn, end: TurnEnd, reply: Sealed | None) -> ReplyDelivery | None:
        ended = msgspec.structs.replace(turn, status=end.status, error=end.error, seen=end.seen)
        if turn.surface not in self._deliveries and turn.id != root_turn_id(turn.id):
            # A platform's question was answered elsewhere: the rest of the reply is delivered there too.
            root = await self._store.scoped(scope).turn(root_turn_id(turn.id))
            if root is not None:
                asked = {"surface": root.surface, "idempotency_key": root.idempotency_key}
                ended = msgspec.structs.replace(ended, **asked, seen={**end.seen, ANSWERED_ELSEWHERE: True})
        if (render := self._deliveries.get(ended.surface)) is None:
            return None
        if reply is None:
            return render(ended, end.error or "", None)
        return render(ended, reply.text, reply.parts_json)

    def _count(self, turn: Turn) -> None:
        self._ended.add(turn.status, turn.surface)
        if turn.finished_at is not None:
            self._lasted.observe((turn.finished_at - turn.created_at).total_seconds(), turn.surface)
        for direction in ("input", "output", "cached"):
            self._tokens.add(direction, self._model_label(turn), by=turn.usage.get(f"{direction}_tokens", 0))

    def _model_label(self, turn: Turn) -> str:
        # A caller can name any model where an agent lists none, so the number of labels is bounded.
        model = turn.model or "unknown"
        if len(self._known_models) < _MAX_MODEL_LABELS:
            self._known_models.add(model)
        return model if model in self._known_models else "other"


def asker_scope(scope: Scope, turn: Turn) -> Scope:
    """The scope of the user who asked: in a thread that several people write in, not always the turn's owner."""
    return scope if turn.asked_by == turn.owner_id else Scope(scope.tenant_id, turn.asked_by)


def cut_reason(exceeded: LimitExceeded) -> str:
    """The error of a turn whose reply was too large."""
    return f"the reply was cut: {exceeded}"


def _failed(end: TurnEnd, reason: str) -> TurnEnd:
    """A turn that was stopped or failed by itself keeps its own reason."""
    # What the reply said to messages that it took in may be lost: they are answered next.
    failed = msgspec.structs.replace(end, status="dispatch_failed", error=reason, taken=())
    return failed if end.status == "executed" else end


async def find_present_request(tx: Transaction, turn: Turn) -> Message | None:
    """The message that the turn answers, if it is in the thread's present history: a user message, or a reply with its
    approvals answered. None if it was undone or the thread was deleted: then the reply is not stored."""
    if turn.request_seq is None or await tx.thread(turn.thread_id) is None:
        return None
    asked = await tx.messages(turn.thread_id, first=turn.request_seq, last=turn.request_seq)
    return asked[0] if asked and asked[0].turn_id == turn.id else None


def _digest(request: TurnRequest, sealed: Sealed) -> bytes:
    """Two requests with the same digest are the same: the same thread, agent, surface and content."""
    compared: list[Any] = [request.thread_id, request.state_key, request.agent_id, request.surface]
    model = None if request.model is None else {"model": request.model}
    optional = (request.replaces, model, stored_options(request.options), stored_form(request.client_tools))
    compared += [each for each in optional if each]
    content = sealed.parts_json + (sealed.metadata_json or b"")
    return hashlib.sha256(msgspec.json.encode(compared) + content).digest()

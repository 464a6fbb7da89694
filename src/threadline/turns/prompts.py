"""Reads what an agent is shown and assembles its prompt.

Reads backwards from the head in growing steps until the window is full, so the cost depends on the window and not on
the length of the thread. A snapshot that cannot be read is left out, logged and counted: the turn runs without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from threadline.core.channels import Agent as AgentRow
from threadline.core.checks import LARGEST_INTEGER
from threadline.core.context import Overflow, assemble, describe_prompt, find_overflow
from threadline.core.errors import AgentFailed, NotFound, StoreFailed
from threadline.core.messages import Message
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.threads import Scope, Thread
from threadline.core.turn_options import options_in
from threadline.core.turns import ASKED_BY, CHANNELS, Summary, Surface, Turn, root_turn_id
from threadline.core.windows import Window, refused_turns
from threadline.observability.metrics import Metrics
from threadline.ports import Store, Transaction
from threadline.turns.acceptance import find_present_request
from threadline.turns.meters import choose_model

log = logging.getLogger("threadline.prompts")

MakeRoom: TypeAlias = Callable[[Scope, Turn, Overflow], None]
_FIRST_READ = 64
_GROWTH = 4
_REQUEST_AND_ONE = 2
"""Beside the turns of the window: the request, and an older turn, which shows that the window is full."""
_BYTES_PER_TOKEN = 4
"""Of stored parts, keys and quotes included: close to what `core.tokens` estimates of them."""


class PromptReader:
    def __init__(
        self,
        store: Store,
        windows: Mapping[Surface, Window],
        default_agent: str,
        metrics: Metrics,
        make_room: MakeRoom | None = None,
    ) -> None:
        """`make_room` is called when older messages should be summarised. It must not wait."""
        self._store = store
        self._windows = windows
        self._default_agent = default_agent
        self._make_room = make_room
        self._history_not_read = metrics.counter(
            "threadline_history_read_failures_total", "Histories that could not be read on channels; the turn went on."
        )
        self._not_read = metrics.counter(
            "threadline_snapshot_read_failures_total", "Pinned contexts that could not be read; the turn went on."
        )

    async def prompt(
        self, scope: Scope, turn: Turn, thread: Thread, row: AgentRow | None
    ) -> tuple[Prompt, dict[str, Any]]:
        """The prompt of a turn, and what is stored about it. `row` is the agent's row, if it has one."""
        tx = self._store.scoped(scope)
        summary = await self._summary(tx, turn)
        history = await self._read_window(tx, turn, summary)
        asked = _request_among(history, turn) or await find_present_request(tx, turn)
        if asked is None:
            raise AgentFailed("the question was removed from this thread before the agent could answer")
        request = asked if asked.role == "user" else await _question_before(tx, asked)
        agent_id, options = turn.agent_id or self._default_agent, options_in(turn.seen)
        prompt = await self._assembled(
            tx,
            turn,
            request,
            history,
            summary=summary,
            # What a user pinned is private: it is not shown in a thread that others write in.
            snapshot=None if ASKED_BY in turn.seen else await self.snapshot(scope, agent_id),
            system_prompt=thread.system_prompt or (row.system_prompt if row else None),
            instructions=options.instructions,
        )
        if asked is not request:
            continued = PromptMessage(asked.role, asked.parts)
            prompt = msgspec.structs.replace(prompt, messages=(*prompt.messages, continued))
        model = choose_model(turn.model, thread, row, agent_id)
        addressed = msgspec.structs.replace(
            prompt,
            model=model,
            agent_id=agent_id,
            thread_id=thread.id,
            turn_id=turn.id,
            response_format=options.response_format,
            model_options=options.model_options,
        )
        return addressed, describe_prompt(addressed, self._windows[turn.surface])

    async def snapshot(self, scope: Scope, agent_id: str) -> str | None:
        """The context that the user pinned for the agent; None if it cannot be read."""
        try:
            found = await self._store.scoped(scope).context(agent_id)
        except StoreFailed:
            log.warning("snapshot not read", extra={"agent_id": agent_id})
            self._not_read.add()
            return None
        return None if found is None else found.context

    async def _assembled(
        self,
        tx: Transaction,
        turn: Turn,
        request: Message,
        history: list[Message],
        *,
        summary: Summary | None,
        snapshot: str | None,
        system_prompt: str | None,
        instructions: str | None,
    ) -> Prompt:
        window = self._windows[turn.surface]
        covered, earlier = _covered(summary), -1
        while True:
            if request.turn_id != turn.id:
                history = [message for message in history if message.turn_id != turn.id]
            prompt = assemble(
                history,
                request,
                window=window,
                snapshot=snapshot,
                system_prompt=system_prompt,
                instructions=instructions,
                summary=summary,
                refused=refused_turns(history),
            )
            oldest = history[0].seq if history else 0
            # The first messages may be hidden: then the oldest stays the same, however many turns are read.
            is_all = oldest <= covered + 1 or oldest == earlier
            is_full = prompt.turns_shown == window.turns or (prompt.first_seq is not None and prompt.first_seq > oldest)
            if is_all or is_full or (prompt.first_seq is None and prompt.turns_shown == 0):
                if self._make_room is not None and (overflow := find_overflow(prompt, window, summary)) is not None:
                    self._make_room(tx.scope, turn, overflow)
                return prompt
            earlier = oldest
            history = await self._history(tx, turn, max(_count_turns(history), _FIRST_READ) * _GROWTH)

    async def _read_window(self, tx: Transaction, turn: Turn, summary: Summary | None) -> list[Message]:
        """As many of the newest turns as the window seems to hold. By the size of what is stored, because assembling a
        prompt to find out takes many times as long."""
        window, covered = self._windows[turn.surface], _covered(summary)
        most = LARGEST_INTEGER if window.turns is None else window.turns + _REQUEST_AND_ONE
        turns = min(_FIRST_READ, most)
        while True:
            history = await self._history(tx, turn, turns)
            if not history or history[0].seq <= covered + 1 or _count_turns(history) < turns or turns == most:
                return history
            tokens = sum(len(each.parts_json) for each in history if each.seq > covered) // _BYTES_PER_TOKEN
            if window.tokens is not None and tokens >= window.tokens:
                return history
            # More than it seems to hold, because its beginning is moved to a step. Never many times as many, because
            # older messages may be longer.
            wanted = turns * _GROWTH if window.tokens is None else turns * window.tokens * 9 // (8 * tokens + 1)
            turns = min(turns * _GROWTH, wanted + 2 * window.step, most)

    async def _summary(self, tx: Transaction, turn: Turn) -> Summary | None:
        try:
            return await tx.summary(turn.thread_id)
        except StoreFailed:
            if turn.surface not in CHANNELS:
                raise
            return None

    async def _history(self, tx: Transaction, turn: Turn, turns: int) -> list[Message]:
        """On a channel, empty if it cannot be read: a sender there cannot retry, and is answered without the
        history."""
        try:
            return await tx.last_turns(turn.thread_id, turns)
        except NotFound as exc:
            raise AgentFailed("the thread was deleted") from exc
        except StoreFailed:
            if turn.surface not in CHANNELS:
                raise
            log.warning("history not read", extra={"turn_id": turn.id})
            self._history_not_read.add()
            return []


def _covered(summary: Summary | None) -> int:
    """The last seq that the summary covers."""
    return -1 if summary is None else summary.point.seq


def _count_turns(history: Sequence[Message]) -> int:
    return sum(message.role == "user" for message in history)


def _request_among(history: Sequence[Message], turn: Turn) -> Message | None:
    """The request of the turn, if it is among the newest messages: see `find_present_request`."""
    found = (message for message in reversed(history) if message.seq == turn.request_seq and message.turn_id == turn.id)
    return next(found, None)


async def _question_before(tx: Transaction, reply: Message) -> Message:
    """The question that a continued reply answers."""
    assert reply.turn_id is not None
    first = await tx.turn(root_turn_id(reply.turn_id))
    seq = first.request_seq if first is not None else None
    found = [] if first is None or seq is None else await tx.messages(first.thread_id, first=seq, last=seq)
    if not found:
        raise AgentFailed("the question was removed from this thread before the agent could answer")
    return found[0]

"""The reply to a question, in process: await the whole message, or iterate over its events while it is written.

Nothing happens until the reply is awaited, iterated or accepted. From then on the turn belongs to the runner: a reader
that stops reading does not stop the turn, `stop` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple

from threadline.core import events
from threadline.core.approvals import NOT_ASKED
from threadline.core.errors import AgentFailed
from threadline.core.events import Event, ToolCall
from threadline.core.messages import Message
from threadline.core.threads import Scope
from threadline.core.turn_commits import Accepted
from threadline.core.turns import Surface, Turn, TurnInfo, reply_id, turn_info
from threadline.core.values import ValueScope
from threadline.messaging.home_threads import HomeThreads
from threadline.ports import Approver, GatewayReply, Store, Verdict
from threadline.threads.compaction import Compaction
from threadline.threads.contexts import Contexts
from threadline.threads.transfer import Importer
from threadline.threads.usage_reports import UsageReports
from threadline.threads.user_threads import Threads
from threadline.threads.values import ValueEncoder, Values
from threadline.turns.acceptance import TurnRequest, Turns
from threadline.turns.approvals import AnswerRequest, Approvals
from threadline.turns.runner import Runner
from threadline.turns.streams import Streams

# How long `stop` waits for the process that runs a turn, which may be slow to notice. Then it ends the turn itself.
_STOP_SECONDS = 5.0


class DenyAll:
    """Denies every tool that needs approval: for places where no person can be asked."""

    async def decide(self, call: ToolCall) -> Verdict:
        return Verdict("deny", NOT_ASKED)


class Defer:
    """Ends the turn with the request open, for a later `respond`."""

    async def decide(self, call: ToolCall) -> Verdict:
        return Verdict("defer")


class UserServices(NamedTuple):
    """The use cases that a user's view calls, bound to one scope and surface."""

    threads: Threads
    contexts: Contexts
    importer: Importer
    compaction: Compaction
    turns: Turns
    approvals: Approvals
    runner: Runner
    streams: Streams
    usage: UsageReports
    store: Store
    value_encoder: ValueEncoder
    homes: HomeThreads
    surface: Surface

    @property
    def scope(self) -> Scope:
        return self.threads.scope

    def values(self, value_scope: ValueScope, scope_id: str) -> Values:
        return Values(self.store, self.value_encoder, self.scope, value_scope, scope_id)

    async def accept(self, request: TurnRequest) -> Accepted:
        return await self.turns.accept(self.scope, request, self.runner.holder())

    async def respond(self, request: AnswerRequest) -> Accepted:
        return await self.approvals.accept(self.scope, request, self.runner.holder())


async def stop_turns(runner: Runner, streams: Streams, scope: Scope, turns: Sequence[Turn]) -> int:
    """Ends turns wherever they run, and waits until what was shown is stored. Returns how many were active."""
    stopped = [turn for turn in turns if await runner.stop(scope, turn.id)]
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            for turn in stopped:
                async for _ in streams.read(scope, turn.id):
                    pass
    except TimeoutError:
        for turn in stopped:
            await runner.force_stop(scope, turn.id)
    return len(stopped)


class Reply(GatewayReply):
    def __init__(self, services: UserServices, accept: Callable[[], Awaitable[Accepted]], approver: Approver) -> None:
        self._services = services
        self._accept = accept
        self._approver = approver
        self._accepted: Accepted | None = None
        self._running: asyncio.Task[Turn | None] | None = None

    def __await__(self) -> Generator[Any, None, Message]:
        return self._message().__await__()

    async def __aiter__(self) -> AsyncIterator[Event]:
        turn = (await self._start()).turn
        finish = events.Finish()
        async for streamed in self._services.streams.read(self._services.scope, turn.id, approver=self._approver):
            match streamed.event:
                case events.Finish():
                    # The agent says that it is done; how the turn ended is known once its end is stored.
                    finish = streamed.event
                case events.Failure():
                    # The stream's own end, said below with the reason that was stored.
                    pass
                case _:
                    yield streamed.event
        ended = await self.ended()
        yield finish if ended.status == "executed" else events.Failure(_reason(ended))

    async def text(self) -> AsyncIterator[str]:
        async for event in self:
            if isinstance(event, events.TextDelta):
                yield event.text

    async def accept(self) -> TurnInfo:
        return turn_info((await self._start()).turn)

    async def turn(self) -> TurnInfo:
        turn = (await self._start()).turn
        return turn_info(await self._services.turns.find(self._services.scope, turn.id))

    async def ended(self) -> TurnInfo:
        """StoreFailed if the turn's end could not be stored."""
        return turn_info(await self._ended())

    async def stop(self) -> bool:
        turn = (await self._start()).turn
        return await self._services.runner.stop(self._services.scope, turn.id)

    async def _start(self) -> Accepted:
        if self._accepted is None:
            self._accepted = await self._accept()
            self._running = await self._services.runner.begin(self._services.scope, self._accepted, self._approver)
        return self._accepted

    async def _ended(self) -> Turn:
        turn = (await self._start()).turn
        if self._running is not None and (ended := await self._ended_here(self._running, turn)) is not None:
            return ended
        if not turn.is_active:
            return turn
        # Another process runs it: its stream ends when the turn does, here if that process ends before.
        async for _ in self._services.streams.read(self._services.scope, turn.id, approver=self._approver):
            pass
        return await self._services.turns.find(self._services.scope, turn.id)

    async def _ended_here(self, running: asyncio.Task[Turn | None], turn: Turn) -> Turn | None:
        await asyncio.wait((running,))
        if running.cancelled():
            # Stopped while it waited for its thread, before anything of it ran: its end is in the store.
            stored = await self._services.turns.find(self._services.scope, turn.id)
            if not stored.is_active:
                return stored
        return running.result()

    async def _message(self) -> Message:
        turn = await self._ended()
        message = await self._services.threads.message(turn.thread_id, reply_id(turn.taken_by or turn.id))
        if turn.status == "dispatch_failed" or message is None:
            raise AgentFailed(_reason(turn_info(turn)))
        return message


def _reason(turn: TurnInfo) -> str:
    return turn.error or f"the turn ended {turn.status} before anything was said"

"""A reply in the hand: ask, and then await the whole message or watch it being written.

Nothing happens until it is awaited or iterated. From then on the turn is the runner's: whoever stops reading does not
stop it; `stop` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from threadline.core import events
from threadline.core.errors import AgentFailed, TurnRunning
from threadline.core.events import Event, ToolCall
from threadline.core.messages import Message
from threadline.core.turns import Turn
from threadline.ports import Approver, Verdict
from threadline.threads.user_threads import Threads
from threadline.turns.acceptance import Accepted, TurnRequest, Turns, reply_id
from threadline.turns.approvals import Approvals
from threadline.turns.runner import Runner
from threadline.turns.streams import Streams


class DenyAll:
    """Where nobody can be asked, a tool that needs approval does not run."""

    async def decide(self, call: ToolCall) -> Verdict:
        return Verdict("deny", "nobody was there to approve it")


class Defer:
    """Where a person can be asked later: the turn ends with the request, and another one answers it."""

    async def decide(self, call: ToolCall) -> Verdict:
        return Verdict("defer")


class Answering:
    """What asking needs, for one scope."""

    def __init__(self, threads: Threads, turns: Turns, runner: Runner, streams: Streams, approvals: Approvals) -> None:
        self.threads = threads
        self.turns = turns
        self.approvals = approvals
        self.runner = runner
        self.streams = streams
        self.scope = threads.scope

    async def accept(self, request: TurnRequest) -> Accepted:
        return await self.turns.accept(self.scope, request, self.runner.lease())

    async def retry_when_free(self, accept: Callable[[], Awaitable[Accepted]]) -> Accepted:
        """A turn whose process has died may stand in the way. It is ended first: beside a library nobody sweeps."""
        while True:
            try:
                return await accept()
            except TurnRunning as exc:
                if await self._still_runs(exc.turn_id):
                    raise

    async def _still_runs(self, turn_id: str) -> bool:
        await self.runner.recover_if_abandoned(self.scope, await self.turns.find(self.scope, turn_id))
        return (await self.turns.find(self.scope, turn_id)).is_active


class Reply:
    """`await reply` for the stored message; `async for event in reply` for every event; `reply.text()` for words."""

    def __init__(self, answering: Answering, accept: Callable[[], Awaitable[Accepted]], approver: Approver) -> None:
        self._answering = answering
        self._accept = accept
        self._approver = approver
        self._accepted: Accepted | None = None
        self._running: asyncio.Task[Turn | None] | None = None

    def __await__(self) -> Generator[Any, None, Message]:
        return self._whole().__await__()

    async def __aiter__(self) -> AsyncIterator[Event]:
        turn = (await self.accept()).turn
        async for chunk in self._answering.streams.read(self._answering.scope, turn.id):
            yield events.from_json(chunk.json)

    async def text(self) -> AsyncIterator[str]:
        async for event in self:
            if isinstance(event, events.TextDelta):
                yield event.text

    async def accept(self) -> Accepted:
        """Stores the request and starts the turn, once; returns as soon as the request is safe."""
        if self._accepted is None:
            self._accepted = await self._answering.retry_when_free(self._accept)
            self._running = self._answering.runner.begin(self._answering.scope, self._accepted, self._approver)
        return self._accepted

    async def ended(self) -> Turn:
        """The turn once it has ended, however it ended. StoreFailed if its end could not be stored."""
        accepted = await self.accept()
        if self._running is not None and (ended := await self._ended_here(self._running)) is not None:
            return ended
        if not accepted.turn.is_active:
            return accepted.turn
        # Another process has it: its stream ends with it.
        async for _ in self._answering.streams.read(self._answering.scope, accepted.turn.id):
            pass
        return await self._answering.turns.find(self._answering.scope, accepted.turn.id)

    async def _ended_here(self, running: asyncio.Task[Turn | None]) -> Turn | None:
        await asyncio.wait((running,))
        if running.cancelled():
            # Stopped while it waited for its thread, before anything of it ran: the store has its end.
            turn = (await self.accept()).turn
            standing = await self._answering.turns.find(self._answering.scope, turn.id)
            if not standing.is_active:
                return standing
        return running.result()

    async def stop(self) -> bool:
        """Ends the turn; what was shown is kept. False if it had ended."""
        accepted = await self.accept()
        return await self._answering.runner.stop(self._answering.scope, accepted.turn.id)

    async def _whole(self) -> Message:
        turn = await self.ended()
        message = await self._answering.threads.message(turn.thread_id, reply_id(turn.id))
        if turn.status == "dispatch_failed" or message is None:
            raise AgentFailed(turn.error or f"the turn ended {turn.status} before anything was said")
        return message

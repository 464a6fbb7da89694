"""A chat in the terminal: one thread at a time, made when the first thing is said.

The database failing never stops a chat: the turn is completed all the same, the person is told once, and what was
said stays in memory for as long as the chat lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from threadline.cli.chat.backends import ChatReply, ChatThread, Host, Said
from threadline.cli.chat.screen import Screen
from threadline.core import events
from threadline.core.approvals import ApprovalDecision
from threadline.core.errors import AgentFailed, StoreFailed, ThreadlineError
from threadline.core.events import Event
from threadline.core.parts import TextPart, ToolPart
from threadline.ports import Approver

_QUIET_SECONDS = 2.0
_BUSY = "This conversation is busy: an earlier message is still being answered. Waiting for it; Ctrl-C gives up."


class Options(msgspec.Struct, frozen=True):
    agent: str | None = None
    model: str | None = None
    system: str | None = None


class Talk:
    def __init__(self, host: Host, screen: Screen, approver: Approver, options: Options):
        self.host = host
        self.screen = screen
        self.options = options
        self.thread: ChatThread | None = None
        self._approver = approver
        self._warned = False
        self._stop_asked = False

    @property
    def agent_id(self) -> str:
        info = self.thread.info if self.thread else None
        return self.options.agent or (info.agent_id if info else None) or self.host.agent

    async def begin_thread(self) -> ChatThread:
        if self.thread is None:
            self.thread = await self.host.begin(self.options, self.agent_id)
        return self.thread

    async def say(self, text: str) -> str | None:
        """One turn, shown as it comes. Its status, or None if it could not be stored."""
        is_first = self.thread is None
        try:
            reply = self.host.ask(await self.begin_thread(), text, self.options.agent, self._approver)
            await reply.accept()
        except StoreFailed as exc:
            self._warn(exc)
            await self._show(self.host.unsaved(text, self.options))
            return None
        except ThreadlineError:
            if is_first and self.thread is not None:
                await self.host.forget(self.thread)
                self.thread = None
            raise
        return await self._follow(reply)

    async def answer_pending(self) -> str | None:
        """Asks the person what the thread's last reply waits for, and goes on with that reply."""
        thread = self.thread
        waiting = await thread.pending() if thread is not None else []
        if thread is None or not waiting:
            return None
        answers: dict[str, ApprovalDecision] = {}
        for each in waiting:
            verdict = await self._approver.decide(events.ToolCall(each.call_id, each.name, each.input))
            answers[each.approval_id] = ApprovalDecision(verdict.answer == "allow", verdict.reason)
        return await self._follow(self.host.respond(thread, answers, self._approver))

    async def _follow(self, reply: ChatReply) -> str | None:
        await reply.accept()
        with self._stopping(reply):
            quiet = asyncio.create_task(self._explain_quiet(reply))
            try:
                await self._show(_cancelling(quiet, aiter(reply)))
            finally:
                quiet.cancel()
                await asyncio.wait((quiet,))
        return await self._outcome(reply)

    async def _explain_quiet(self, reply: ChatReply) -> None:
        """Nothing came for a moment: if that is because somebody else is being answered here, the person is told."""
        await asyncio.sleep(_QUIET_SECONDS)
        assert self.thread is not None
        with contextlib.suppress(ThreadlineError):
            if await self.host.waits(self.thread, reply):
                self.screen.note(_BUSY)

    async def _outcome(self, reply: ChatReply) -> str | None:
        try:
            turn = await reply.ended()
            assert self.thread is not None
            await self.thread.refresh()
        except StoreFailed as exc:
            self._warn(exc)
            return None
        if turn.status == "stopped":
            self.screen.note("Stopped. What was said is kept.")
        return turn.status

    async def _show(self, shown: AsyncIterator[Event]) -> None:
        try:
            async for event in shown:
                # That a reply was stopped is no error to who stopped it.
                if not (self._stop_asked and isinstance(event, events.Failure)):
                    self.screen.show(event)
        except StoreFailed as exc:
            self._warn(exc)
        except AgentFailed as exc:
            self.screen.error(str(exc))
        finally:
            self.screen.end()

    def _warn(self, exc: ThreadlineError) -> None:
        if not self._warned:
            self._warned = True
            self.screen.warn(f"this is not being saved: {exc}")

    @contextlib.contextmanager
    def _stopping(self, reply: ChatReply) -> Iterator[None]:
        """While a reply is written, Ctrl-C stops the turn instead of the program."""
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Future[bool]] = set()
        self._stop_asked = False

        def stop() -> None:
            self._stop_asked = True
            task: asyncio.Future[bool] = asyncio.ensure_future(reply.stop())
            waiting.add(task)
            task.add_done_callback(waiting.discard)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def show_history(self, messages: Sequence[Said]) -> None:
        """The last turns of a resumed thread, so that the person knows where they are."""
        for message in messages:
            self.screen.line(f"{message.role}:")
            for part in message.parts:
                self._show_part(part)
            self.screen.end()

    def _show_part(self, part: Any) -> None:
        match part:
            case TextPart():
                self.screen.show(events.TextDelta(part.text))
            case ToolPart():
                self.screen.show(events.ToolCall(part.call_id, part.name, part.input_value()))
                if part.state == "output-available":
                    self.screen.show(events.ToolResult(part.call_id, part.output_value()))
                elif part.error is not None:
                    self.screen.show(events.ToolError(part.call_id, part.error))
            case _:
                pass


async def _cancelling(quiet: asyncio.Task[None], shown: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in shown:
        quiet.cancel()
        yield event

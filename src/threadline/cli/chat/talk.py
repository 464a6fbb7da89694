"""A chat in the terminal: one thread at a time, made when the first thing is said.

The database failing never stops a chat: the turn is completed all the same, the person is told once, and what was
said stays in memory for as long as the chat lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from threadline.bootstrap import Threadline
from threadline.cli.chat.screen import Screen
from threadline.cli.chat.unsaved import Unsaved
from threadline.core import events
from threadline.core.approvals import Answer
from threadline.core.errors import AgentFailed, StoreFailed, ThreadlineError
from threadline.core.events import Event
from threadline.core.messages import Message
from threadline.core.parts import TextPart, ToolPart
from threadline.core.threads import Scope
from threadline.library import ThreadHandle, UserView
from threadline.ports import Approver
from threadline.replies import Reply


class Options(msgspec.Struct, frozen=True):
    agent: str | None = None
    model: str | None = None
    system: str | None = None


class Talk:
    def __init__(self, threadline: Threadline, scope: Scope, screen: Screen, approver: Approver, options: Options):
        self.threadline = threadline
        self.screen = screen
        self.options = options
        self.thread: ThreadHandle | None = None
        self._approver = approver
        self._unsaved = Unsaved(threadline, scope, approver)
        self._warned = False

    @property
    def view(self) -> UserView:
        return self.threadline.as_user()

    @property
    def agent_id(self) -> str:
        held = self.thread.info.agent_id if self.thread else None
        return self.options.agent or held or self.threadline.settings.agent

    async def begin_thread(self) -> ThreadHandle:
        if self.thread is None:
            self.thread = await self.view.create_thread(
                agent_id=self.agent_id,
                model=self.options.model,
                system_prompt=self.options.system,
                working_dir=str(Path.cwd()),
            )
        return self.thread

    async def say(self, text: str) -> str | None:
        """One turn, shown as it comes. Its status, or None if it could not be stored."""
        try:
            reply = (await self.begin_thread()).ask(
                text, agent=self.options.agent, surface="cli", approver=self._approver
            )
            await reply.accept()
        except StoreFailed as exc:
            self._warn(exc)
            await self._show(self._unsaved.answer(text, self.options))
            return None
        return await self._follow(reply)

    async def answer_pending(self) -> str | None:
        """Asks the person what the thread's last reply waits for, and goes on with that reply."""
        thread = self.thread
        waiting = await thread.pending() if thread is not None else []
        if thread is None or not waiting:
            return None
        answers: dict[str, Answer] = {}
        for each in waiting:
            verdict = await self._approver.decide(events.ToolCall(each.call_id, each.name, each.input))
            answers[each.approval_id] = Answer(verdict.answer == "allow", verdict.reason)
        return await self._follow(thread.respond(answers, surface="cli", approver=self._approver))

    async def _follow(self, reply: Reply) -> str | None:
        await reply.accept()
        with self._stopping(reply):
            await self._show(aiter(reply))
        return await self._outcome(reply)

    async def _outcome(self, reply: Reply) -> str | None:
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
    def _stopping(self, reply: Reply) -> Iterator[None]:
        """While a reply is written, Ctrl-C stops the turn instead of the program."""
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Task[bool]] = set()

        def stop() -> None:
            task = asyncio.ensure_future(reply.stop())
            waiting.add(task)
            task.add_done_callback(waiting.discard)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def show_history(self, messages: list[Message]) -> None:
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

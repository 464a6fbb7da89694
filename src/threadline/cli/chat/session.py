"""A chat in the terminal on a gateway: one thread at a time, created when the first message is sent.

A database that fails does not end a local chat: `UnsavedChat` answers instead, and a warning is printed once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from threadline.cli.chat.screen import Screen
from threadline.core import events
from threadline.core.approvals import ApprovalDecision
from threadline.core.errors import AgentFailed, StoreFailed, ThreadlineError
from threadline.core.events import Event
from threadline.core.messages import Message
from threadline.core.parts import Part, TextPart, ToolPart
from threadline.core.threads import ThreadFields
from threadline.ports import Approver
from threadline.ports.gateway import Gateway, GatewayReply, GatewayThread

# Most replies start within two seconds; a longer silence is explained if the turn is still queued.
_SILENCE_SECONDS = 2.0
_BUSY = "This chat is busy: an earlier message is still being answered. Waiting for it; Ctrl-C cancels your message."


class ChatOptions(msgspec.Struct, frozen=True):
    """The options of the command line that every turn of the chat needs."""

    agent: str | None = None
    model: str | None = None
    system: str | None = None


AskUnsaved: TypeAlias = Callable[[str, ChatOptions], AsyncIterator[Event]]


class ChatSession:
    def __init__(
        self,
        gateway: Gateway,
        screen: Screen,
        approver: Approver,
        options: ChatOptions,
        *,
        default_agent: str,
        new_thread: ThreadFields | None = None,
        ask_unsaved: AskUnsaved | None = None,
    ) -> None:
        """`new_thread` are the fields of threads that the chat creates. `ask_unsaved` answers
        if the store fails."""
        self.gateway = gateway
        self.screen = screen
        self.options = options
        self.thread: GatewayThread | None = None
        self._approver = approver
        self._default_agent = default_agent
        self._new_thread = new_thread or ThreadFields()
        self._ask_unsaved = ask_unsaved
        self._has_warned = False
        self._is_stop_requested = False

    @property
    def agent_id(self) -> str:
        return self.options.agent or (self.thread.agent_id if self.thread else None) or self._default_agent

    async def create_thread(self, title: str | None = None) -> GatewayThread:
        agent_id = self.options.agent or self._default_agent
        fields: ThreadFields = {**self._new_thread, "title": title, "agent_id": agent_id}
        if self.options.model is not None:
            fields["model"] = self.options.model
        return await self.gateway.create_thread(**fields)

    async def begin_thread(self) -> GatewayThread:
        if self.thread is None:
            self.thread = await self.create_thread()
        return self.thread

    async def ask(self, text: str) -> str | None:
        """Asks a question and prints the reply. Returns the status of the turn, None if it could not be stored."""
        is_first = self.thread is None
        try:
            thread = await self.begin_thread()
            reply = thread.ask(text, agent=self.options.agent, policy="queue", approver=self._approver)
            await reply.accept()
        except StoreFailed as exc:
            if self._ask_unsaved is None:
                raise
            self._warn_unsaved(exc)
            await self._print_events(self._ask_unsaved(text, self.options))
            return None
        except ThreadlineError:
            # A rejected first message must not leave an empty thread.
            if is_first and self.thread is not None:
                await self.thread.purge()
                self.thread = None
            raise
        return await self._follow(reply)

    async def show_thread(self) -> None:
        """Prints the last two turns of the thread and asks for approvals that are still pending."""
        if self.thread is not None:
            self._print_history(await self.thread.last_turns(2))
            await self._answer_pending(self.thread)

    async def _answer_pending(self, thread: GatewayThread) -> None:
        pending = await thread.pending()
        if not pending:
            return
        answers: dict[str, ApprovalDecision] = {}
        for each in pending:
            verdict = await self._approver.decide(events.ToolCall(each.call_id, each.name, each.input))
            answers[each.approval_id] = ApprovalDecision(verdict.answer == "allow", verdict.reason)
        await self._follow(thread.respond(answers, approver=self._approver))

    async def _follow(self, reply: GatewayReply) -> str | None:
        await reply.accept()
        with self._stop_on_interrupt(reply):
            silence = asyncio.create_task(self._explain_silence(reply))
            try:
                await self._print_events(_cancel_at_first(silence, aiter(reply)))
            finally:
                silence.cancel()
                await asyncio.wait((silence,))
        return await self._read_outcome(reply)

    async def _explain_silence(self, reply: GatewayReply) -> None:
        await asyncio.sleep(_SILENCE_SECONDS)
        # Only a hint: an error here is reported by the reply itself.
        with contextlib.suppress(ThreadlineError):
            if (await reply.turn()).status == "accepted":
                self.screen.note(_BUSY)

    async def _read_outcome(self, reply: GatewayReply) -> str | None:
        assert self.thread is not None  # set before the question was asked
        try:
            turn = await reply.ended()
            await self.thread.refresh()
        except StoreFailed as exc:
            self._warn_unsaved(exc)
            return None
        if turn.status == "stopped":
            self.screen.note("Stopped. The part above is saved.")
        return turn.status

    async def _print_events(self, stream: AsyncIterator[Event]) -> None:
        try:
            async for event in stream:
                # Stopping a reply is not an error for the user who pressed Ctrl-C.
                if not (self._is_stop_requested and isinstance(event, events.Failure)):
                    self.screen.print_event(event)
        except StoreFailed as exc:
            self._warn_unsaved(exc)
        except AgentFailed as exc:
            self.screen.error(str(exc))
        finally:
            self.screen.end()

    def _warn_unsaved(self, exc: ThreadlineError) -> None:
        if not self._has_warned:
            self._has_warned = True
            self.screen.warn(f"this chat is not being saved: {exc}")

    @contextlib.contextmanager
    def _stop_on_interrupt(self, reply: GatewayReply) -> Iterator[None]:
        """While a reply is printed, Ctrl-C stops the turn instead of the program."""
        loop = asyncio.get_running_loop()
        # The loop holds only weak references to tasks.
        stopping: set[asyncio.Future[bool]] = set()
        self._is_stop_requested = False

        def stop() -> None:
            self._is_stop_requested = True
            task: asyncio.Future[bool] = asyncio.ensure_future(reply.stop())
            stopping.add(task)
            task.add_done_callback(stopping.discard)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _print_history(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.screen.line(f"{message.role}:")
            for part in message.parts:
                self._print_part(part)
            self.screen.end()

    def _print_part(self, part: Part) -> None:
        match part:
            case TextPart():
                self.screen.print_event(events.TextDelta(part.text))
            case ToolPart():
                self.screen.print_event(events.ToolCall(part.call_id, part.name, part.input_value()))
                if part.state == "output-available":
                    self.screen.print_event(events.ToolResult(part.call_id, part.output_value()))
                elif part.error is not None:
                    self.screen.print_event(events.ToolError(part.call_id, part.error))
            case _:
                pass


async def _cancel_at_first(task: asyncio.Task[None], stream: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in stream:
        task.cancel()
        yield event

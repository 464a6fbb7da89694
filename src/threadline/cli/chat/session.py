"""A chat in the terminal on a gateway: one thread at a time, created when the first message is sent.

A database that fails does not end a local chat: it continues on its copy in memory, with its history, and each question
first tries to save what the database does not have yet. Both changes are printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from threadline.cli.chat.screen import Screen
from threadline.cli.output import pluralize
from threadline.cli.printable import printable
from threadline.core import events
from threadline.core.approvals import ApprovalDecision
from threadline.core.errors import AgentFailed, StoreFailed, ThreadlineError
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.core.ids import new_id
from threadline.core.messages import NewMessage, user
from threadline.core.parts import Part
from threadline.core.threads import ThreadFields
from threadline.core.turns import TurnInfo, TurnStatus
from threadline.ports import Approver
from threadline.ports.gateway import Gateway, GatewayReply, GatewayThread

if TYPE_CHECKING:
    from threadline.cli.chat.memory_copy import MemoryCopy

TakeLine: TypeAlias = Callable[[str], None]

# Most replies start within two seconds; a longer silence is explained if the turn is still queued.
_SILENCE_SECONDS = 2.0
_BUSY = "This chat is busy: an earlier message is still being answered. Waiting for it; Ctrl-C cancels your message."


class Quit(Exception):
    """The user typed /quit."""


class ChatOptions(msgspec.Struct, frozen=True):
    """The options of the command line that every turn of the chat needs."""

    agent: str | None = None
    model: str | None = None
    system: str | None = None


class Answer(NamedTuple):
    """The reply to one question, as it was printed. `is_saved`: question and reply are in the database. `turn` is None
    if the database failed before its end."""

    status: TurnStatus
    parts: tuple[Part, ...]
    is_saved: bool
    error: str | None = None
    turn: TurnInfo | None = None


class _Steering(NamedTuple):
    """A message that was typed during a reply, and the task that sends it."""

    text: str
    sent: asyncio.Future[GatewayReply]


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
        memory: MemoryCopy | None = None,
        failure: StoreFailed | None = None,
        list_agents: Callable[[], Awaitable[Sequence[str]]] | None = None,
        while_printing: Callable[[TakeLine], contextlib.AbstractContextManager[None]] | None = None,
    ) -> None:
        """`new_thread` are the fields of threads that the chat creates. The chat continues on `memory` if the store
        fails; `failure` says why it was opened only for reading. A reply is printed inside of `while_printing`, which
        hands over the lines that are typed while it is entered."""
        self.gateway = gateway
        self.screen = screen
        self.options = options
        self.thread: GatewayThread | None = None
        self.is_in_memory = False
        """Whether the database failed, and the chat continues on its copy in memory."""
        self._copied_thread_id: str | None = None
        """The thread in the database that the copy was made of."""
        self._approver = approver
        self._default_agent = default_agent
        self._new_thread = new_thread or ThreadFields()
        self._memory = memory
        self._failure = failure
        self._list_agents = list_agents
        self._while_printing = while_printing or (lambda _: contextlib.nullcontext())
        self._is_stop_requested = False
        self.typed_ahead: list[str] = []
        """Lines that were typed during a reply and are no message for it: to be handled next."""
        self._steering: list[_Steering] = []

    @property
    def working_dir(self) -> str | None:
        """The folder of threads that the chat creates."""
        return self._new_thread.get("working_dir")

    async def agent_ids(self) -> Sequence[str]:
        """The agents that can be asked; none if they cannot be listed."""
        if self._list_agents is None:
            return ()
        try:
            return await self._list_agents()
        except StoreFailed:
            return ()

    async def warn_of_missing_agent(self) -> None:
        """A thread can outlive its agent: it was removed from the settings, or the thread comes from elsewhere."""
        known = await self.agent_ids()
        if known and self.agent_id not in known:
            named = ", ".join(map(printable, known))
            self.screen.warn(f"agent {self.agent_id!r} is not configured here: /agent NAME asks another one ({named})")

    @property
    def agent_id(self) -> str:
        return self.options.agent or (self.thread.agent_id if self.thread else None) or self._default_agent

    @property
    def stored_thread_id(self) -> str | None:
        """The thread as it is in the database: None for one that is in memory only."""
        if self.is_in_memory:
            return self._copied_thread_id
        return None if self.thread is None else self.thread.id

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

    async def ask(self, text: str) -> Answer:
        """Asks a question and prints the reply."""
        # With an id of its own the question is stored once, also if it is asked again in memory and saved later.
        question = user(text, id=new_id())
        await self.try_to_save()
        try:
            return await self._ask(question)
        except StoreFailed as exc:
            await self.continue_in_memory(exc)
            return await self._ask(question)

    async def _ask(self, question: NewMessage) -> Answer:
        is_first = self.thread is None
        try:
            thread = await self.begin_thread()
            agent, model = self.options.agent, self.options.model
            reply = thread.ask(question, agent=agent, model=model, policy="queue", approver=self._approver)
            await reply.accept()
        except StoreFailed:
            raise
        except ThreadlineError:
            # A rejected first message must not leave an empty thread.
            if is_first and self.thread is not None:
                await self.thread.purge()
                self.thread = None
            raise
        return await self._follow(reply, question)

    async def remember(self) -> None:
        """Brings the copy in memory up to date, while the database works."""
        if self._memory is not None and not self.is_in_memory:
            await self._memory.remember(self.thread, self.agent_id)

    async def continue_in_memory(self, exc: StoreFailed) -> None:
        """Continues on the copy in memory. Raises the error again where there is none, or if memory fails too."""
        if self._memory is None or self.is_in_memory:
            raise exc
        self.mark_in_memory(self._failure or exc)
        self._copied_thread_id = None if self.thread is None else self.thread.id
        self.gateway, self.thread = await self._memory.open(self.thread)

    def mark_in_memory(self, exc: StoreFailed) -> None:
        self.is_in_memory = True
        hint = "It continues in memory; /export FILE writes it to a file"
        self.screen.warn(f"this chat is not being saved: {exc}. {hint}")

    async def try_to_save(self) -> None:
        """Saves what is in memory only, if the database works again."""
        if self._memory is None or not self.is_in_memory:
            return
        try:
            saved = await self._memory.save(self.thread)
        except ThreadlineError:
            return
        self.is_in_memory, self.gateway, self.thread = False, saved.gateway, saved.thread
        count = pluralize(saved.messages, "message")
        self.screen.note(f"The database works again: this chat is saved, with {count} that it did not have.")

    async def count_unsaved(self) -> int:
        return 0 if self._memory is None else await self._memory.count_unsaved()

    async def show_thread(self) -> None:
        """Prints the last two turns of the thread and asks for approvals that are still pending."""
        if self.thread is not None:
            messages = await self.thread.last_turns(2)
            for message in messages:
                self.screen.print_message(message)
            if messages and messages[-1].role == "user":
                self.screen.note("(no reply: it was interrupted before anything of it was stored, or still runs)")
            await self._answer_pending(self.thread)

    async def _answer_pending(self, thread: GatewayThread) -> None:
        pending = await thread.pending()
        if not pending:
            return
        if elsewhere := next((each for each in pending if each.approval_id is None), None):
            self.screen.note(f"The last reply waits for {elsewhere.name}, which the program that asked runs.")
            return
        answers: dict[str, ApprovalDecision] = {}
        for each in pending:
            verdict = await self._approver.decide(events.ToolCall(each.call_id, each.name, each.input))
            answers[each.id] = ApprovalDecision(verdict.answer == "allow", verdict.reason)
        await self._follow(thread.respond(answers, approver=self._approver))

    async def _follow(self, reply: GatewayReply, question: NewMessage | None = None) -> Answer:
        """Prints a reply while it is written. StoreFailed if the database failed before anything was said."""
        accepted = await reply.accept()
        self.screen.begin_reply(accepted)
        fold = Fold()
        try:
            with self._while_printing(self._take_line), self._stop_on_interrupt(reply):
                silence = asyncio.create_task(self._explain_silence(reply))
                try:
                    await self._print_events(_cancel_at_first(silence, aiter(reply)), fold)
                finally:
                    silence.cancel()
                    await asyncio.wait((silence,))
            answer = await self._read_outcome(reply, fold)
        except StoreFailed as exc:
            if question is None or self._memory is None:
                raise
            status: TurnStatus = "dispatch_failed" if fold.failure else "executed"
            if self._is_stop_requested:
                status = "stopped"
            await self.continue_in_memory(exc)
            assert self.thread is not None  # set before the question was asked
            parts = () if fold.is_empty else fold.parts()
            await self._memory.adopt(self.thread, question, accepted, status, parts)
            if not parts:
                return await self._ask(question)
            return Answer(status, parts, is_saved=False, error=fold.failure)
        await self._follow_steered()
        return answer

    def _take_line(self, text: str) -> None:
        """A line that was typed while a reply is printed. Commands and messages that mention resources wait."""
        if self.is_in_memory or text.startswith("/") or "@" in text:
            self.typed_ahead.append(text)
            return
        # Sent in a task, because the reply is being printed. `_follow_steered` waits for it.
        self._steering.append(_Steering(text, asyncio.ensure_future(self._steer(text))))

    async def _steer(self, text: str) -> GatewayReply:
        """Sends a message to the reply that runs: it is taken in before the model's next call, or answered next."""
        assert self.thread is not None  # a reply of it is being printed
        agent, model = self.options.agent, self.options.model
        question = user(text, id=new_id())
        reply = self.thread.ask(question, agent=agent, model=model, policy="steer", approver=self._approver)
        await reply.accept()
        self.screen.note(f"> {printable(text, multiline=True)}")
        return reply

    async def _follow_steered(self) -> None:
        """Prints the replies to messages that no reply took in."""
        while self._steering:
            steering = self._steering.pop(0)
            try:
                reply = await steering.sent
            except StoreFailed:
                # Asked again like any question, which finds out how the chat continues.
                self.typed_ahead.append(steering.text)
                continue
            except ThreadlineError as exc:
                self.screen.error(str(exc))
                continue
            if (await reply.turn()).taken_by is None:
                await self._follow(reply)

    async def _explain_silence(self, reply: GatewayReply) -> None:
        await asyncio.sleep(_SILENCE_SECONDS)
        # Only a hint: an error here is reported by the reply itself.
        with contextlib.suppress(ThreadlineError):
            if (await reply.turn()).status == "accepted":
                self.screen.note(_BUSY)

    async def _read_outcome(self, reply: GatewayReply, fold: Fold) -> Answer:
        assert self.thread is not None  # set before the question was asked
        turn = await reply.ended()
        await self.thread.refresh()
        if turn.status == "stopped":
            self.screen.note("Stopped. The part above is saved." if not self.is_in_memory else "Stopped.")
        try:
            await self.remember()
        except StoreFailed:
            # The turn failed because the history could not be read: ask again in memory.
            if turn.status == "dispatch_failed" and fold.is_empty:
                raise
        error = None if turn.status == "executed" else turn.error
        return Answer(turn.status, fold.parts(), is_saved=not self.is_in_memory, error=error, turn=turn)

    async def _print_events(self, stream: AsyncIterator[Event], fold: Fold) -> None:
        try:
            async for event in stream:
                fold.add(event)
                # Stopping a reply is not an error for the user who pressed Ctrl-C.
                if not (self._is_stop_requested and isinstance(event, events.Failure)):
                    self.screen.print_event(event)
        except AgentFailed as exc:
            self.screen.error(str(exc))
        finally:
            self.screen.end()

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


async def _cancel_at_first(task: asyncio.Task[None], stream: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in stream:
        task.cancel()
        yield event

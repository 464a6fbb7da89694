"""Slash commands: the rows of `core.commands` for the terminal, executed on the chat's gateway.

`TerminalThreads` gives the shared handlers the chat's threads. Commands that only a terminal has (`/context TEXT`,
`/model`, `/compact`, `/export`, `/quit`) have their handlers here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from threadline.cli.chat.session import ChatSession, Quit
from threadline.cli.output import output_file
from threadline.cli.printable import printable
from threadline.clock import SystemClock
from threadline.core.commands import Command, help_text, specs_for
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.open_questions import OpenQuestion
from threadline.core.threads import SavedPoint
from threadline.core.transfer import ExportFormat
from threadline.messaging.command_executor import (
    ChatInfo,
    CommandCall,
    CommandExecutor,
    CurrentChat,
    Hint,
    interpret,
    start_chat,
)
from threadline.ports.gateway import GatewayThread

PREFIX = "/"
WORDS = [f"{PREFIX}{spec.name}" for spec in specs_for("terminal")]
_USER = "terminal"
_KEYS = "Alt-Enter starts a new line, Ctrl-C stops a reply, Ctrl-D quits."
_SEARCHED_TITLES = 100


class SlashCommands:
    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._threads = TerminalThreads(session)
        self._clock = SystemClock()
        self._executor = CommandExecutor(
            {
                "new": self._new,
                "context": self._context,
                "model": self._model,
                "compact": self._compact,
                "export": self._export,
                "help": self._help,
                "quit": self._quit,
            }
        )

    async def run(self, text: str) -> bool:
        """Executes a command, or the answer to the question that the last one asked. False if the text is a message
        for the agent. Quit, and every error that a command can raise."""
        # A question is open for one line only, so that a number typed later is a message.
        question, self._threads.question = self._threads.question, None
        first, _, more = text.strip().partition("\n")
        now = self._clock.now()
        command = interpret(first, question, user_id=_USER, now=now, place="terminal", prefix=PREFIX)
        match command:
            case None:
                return False
            case Hint(hint):
                self._session.screen.reply(hint)
                return True
        if more:
            command = _with_lines(command, more)
        before = self._session.thread
        reply = await self._executor.execute(command, CommandCall(self._threads, _USER, now, "terminal", PREFIX))
        if reply is not None:
            self._session.screen.reply(reply)
        if command.name == "open" and self._session.thread is not before:
            await self._session.show_thread()
        return True

    async def _new(self, call: CommandCall) -> str | None:
        if call.argument is not None:
            return await start_chat(call)
        # Created with the first message, so that no empty thread is left.
        self._session.thread = None
        return "Your next message starts a new chat."

    async def _context(self, call: CommandCall) -> str:
        contexts, agent_id = self._session.gateway.contexts, self._session.agent_id
        if call.argument == "clear":
            cleared = await contexts.clear(agent_id)
            return f"Cleared the text pinned for {agent_id}." if cleared else f"Nothing is pinned for {agent_id}."
        if call.argument is not None:
            await contexts.set(agent_id, call.argument)
            return f"Pinned for {agent_id}: it is put first in every prompt."
        try:
            pinned = (await contexts.get(agent_id)).context
            self._session.screen.line(f"Pinned for {agent_id}:\n{printable(pinned, multiline=True)}")
        except NotFound:
            self._session.screen.note(f"Nothing is pinned for {agent_id}. Pin a text with /context TEXT.")
        if self._session.thread is None:
            return "No chat yet: your next message starts one."
        info = await self._session.thread.refresh()
        return f"Chat `{info.id}`: {info.message_count} messages, {info.token_count} tokens."

    async def _model(self, call: CommandCall) -> str:
        session = self._session
        if call.argument is None:
            model = (session.thread.model if session.thread else None) or session.options.model
            return f"Agent {session.agent_id}, model {printable(model or '(default)')}."
        if session.thread is not None:
            await session.thread.update(model=call.argument)
        session.options = msgspec.structs.replace(session.options, model=call.argument)
        return f"Using model {printable(call.argument)} from now on."

    async def _compact(self, call: CommandCall) -> str:
        summary = await self._threads.require().compact()
        if summary is None:
            return "Nothing to summarise: this chat is short enough."
        return f"Summarised messages up to {summary.point.seq} for the agent. No message is deleted."

    async def _export(self, call: CommandCall) -> str:
        thread = self._threads.require()
        path = Path(call.argument or f"{thread.id}.md")
        formats: dict[str, ExportFormat] = {".jsonl": "jsonl", ".json": "json"}
        with output_file(str(path)) as out:
            async for piece in thread.export(formats.get(path.suffix, "markdown")):
                out.write(piece)
        return f"Exported to `{path}`."

    async def _help(self, call: CommandCall) -> str:
        rows = [line.partition(": ") for line in help_text("terminal", PREFIX).splitlines()]
        width = max(len(usage) for usage, _, _ in rows)
        for usage, _, text in rows:
            self._session.screen.line(f"{usage:{width}}  {text}")
        return _KEYS

    async def _quit(self, call: CommandCall) -> str:
        raise Quit


class TerminalThreads:
    """`CommandThreads` for the chat's session: the place is the terminal, its thread is the session's."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._created: GatewayThread | None = None
        self.question: OpenQuestion | None = None

    def require(self) -> GatewayThread:
        if self._session.thread is None:
            raise InvalidInput("no chat yet: send a message first, or open one with /open")
        return self._session.thread

    async def current(self) -> CurrentChat:
        return CurrentChat(await self.require().refresh())

    async def create(self, title: str | None) -> ChatInfo:
        self._created = await self._session.create_thread(title)
        return self._created

    async def branch(self, title: str | None) -> ChatInfo:
        self._created = await self.require().branch(title=title)
        return self._created

    async def open_place(self, thread: ChatInfo, reply: str) -> str | None:
        await self.continue_here(thread)
        return reply

    async def continue_here(self, thread: ChatInfo) -> None:
        created, self._created = self._created, None
        is_created = created is not None and created.id == thread.id
        self._session.thread = created if is_created else await self._session.gateway.thread(thread.id)

    async def find(self, name: str) -> Sequence[ChatInfo]:
        with contextlib.suppress(NotFound):
            return [await self._session.gateway.thread(name)]
        recent = await self._session.gateway.threads(limit=_SEARCHED_TITLES, archived=None)
        return [each for each in recent.items if (each.title or "").casefold() == name.casefold()]

    async def recent(self, limit: int) -> Sequence[CurrentChat]:
        return [CurrentChat(each) for each in (await self._session.gateway.threads(limit=limit)).items]

    async def saved_points(self) -> Sequence[SavedPoint]:
        return await self._session.gateway.saved_points()

    async def save(self, name: str) -> SavedPoint:
        return await self.require().save(name)

    async def load(self, name: str) -> ChatInfo:
        thread = await self._session.begin_thread()
        await thread.load(name)
        return thread

    async def undo(self) -> ChatInfo:
        thread = self.require()
        await thread.undo()
        return thread

    async def rename(self, title: str) -> ChatInfo:
        thread = await self._session.begin_thread()
        await thread.update(title=title)
        return thread

    async def archive(self) -> None:
        await self.require().update(archived=True)

    async def ask(self, question: OpenQuestion | None) -> None:
        self.question = question


def _with_lines(command: Command, more: str) -> Command:
    """Only a pinned text can have several lines."""
    if command.name != "context" or command.argument is None:
        raise InvalidInput(f"/{command.name} must be one line")
    return command._replace(argument=f"{command.argument}\n{more}")

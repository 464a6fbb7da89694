"""Slash commands: the rows of `core.commands` for the terminal, executed on the chat's gateway.

Commands that only a terminal has, such as `/agent`, `/usage` and `/edit`, have their handlers here. A line that begins
with `//` is a message that begins with `/`. A first word that contains another slash, a dot or a colon, as a path
does, is no command either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from threadline.cli.chat.editor import edit_text
from threadline.cli.chat.server_prompts import ServerPrompts
from threadline.cli.chat.session import ChatSession, Quit
from threadline.cli.chat.summary_commands import SummaryCommands
from threadline.cli.chat.terminal_threads import TerminalThreads
from threadline.cli.output import output_file, pluralize
from threadline.cli.printable import printable
from threadline.clock import SystemClock
from threadline.core.commands import Command, help_text, specs_for
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.transfer import ExportFormat
from threadline.messaging.command_executor import (
    CommandCall,
    CommandExecutor,
    Hint,
    escape,
    interpret,
    start_chat,
)

PREFIX = "/"
ESCAPED = "//"
WORDS = [(f"{PREFIX}{spec.name}", spec.help) for spec in specs_for("terminal")]
_USER = "terminal"
_KEYS = "Tab completes, Alt-Enter starts a new line, Ctrl-C stops a reply, Ctrl-D quits."
_TURNS = 500


class SlashCommands:
    def __init__(self, session: ChatSession, currency: str = "", prompts: ServerPrompts | None = None) -> None:
        """`prompts` are those of MCP servers; a chat on a service has none."""
        self._session = session
        self._prompts = prompts
        self.summaries = SummaryCommands(session)
        self._currency = currency
        self._message: str | None = None
        self._threads = TerminalThreads(session)
        self._clock = SystemClock()
        self._executor = CommandExecutor(
            {
                "new": self._new,
                "context": self._context,
                "model": self._model,
                "agent": self._agent,
                "usage": self._usage,
                "edit": self._edit,
                "compact": self.summaries.compact,
                "summary": self.summaries.summary,
                "export": self._export,
                "help": self._help,
                "quit": self._quit,
            }
        )

    async def run(self, text: str) -> str | None:
        """Executes a command, or the answer to the question that the last one asked. Returns the message for the agent
        if there is one: the text itself if it is no command. Quit, and every error that a command can raise."""
        # A question is open for one line only, so that a number typed later is a message.
        question, self._threads.question = self._threads.question, None
        if text.startswith(ESCAPED):
            return text[1:]
        if self._prompts is not None and (message := await self._prompts.message_of(text)) is not None:
            self._session.screen.show_sent(message)
            return message
        first, _, more = text.strip().partition("\n")
        now = self._clock.now()
        command = interpret(first, question, user_id=_USER, now=now, place="terminal", prefix=PREFIX)
        match command:
            case None:
                return text
            case Hint(hint):
                self._session.screen.reply(f"{hint} To send it as a message, begin with //.")
                return None
        if more:
            command = _with_lines(command, more)
        before = self._session.thread
        self._message = None
        reply = await self._executor.execute(command, CommandCall(self._threads, _USER, now, "terminal", PREFIX))
        if reply is not None:
            self._session.screen.reply(reply)
        if command.name == "open" and self._session.thread is not before:
            await self._session.show_thread()
        return self._message

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

    async def _agent(self, call: CommandCall) -> str:
        session, known = self._session, await self._session.agent_ids()
        if call.argument is None:
            listed = ", ".join(f"{each} (now)" if each == session.agent_id else each for each in known)
            return f"Agents: {escape(listed)}. Ask another one with {call.spell('agent ID')}."
        if known and call.argument not in known:
            raise InvalidInput(f"no agent {call.argument!r} here: use {', '.join(known)}")
        if session.thread is not None:
            # A model belongs to the agent that was asked before.
            await session.thread.update(agent_id=call.argument, model=None)
        session.options = msgspec.structs.replace(session.options, agent=call.argument, model=None)
        return f"Agent {escape(call.argument)} answers from now on."

    async def _usage(self, call: CommandCall) -> str:
        lines = []
        if (thread := self._session.thread) is not None:
            used = [turn.usage for turn in await thread.turns(limit=_TURNS)]
            lines.append(f"This chat: {self._describe_usage(len(used), used)}.")
        rows = await self._session.gateway.usage(by=("model",))
        month = [msgspec.structs.asdict(row) for row in rows]
        lines.append(f"This month: {self._describe_usage(sum(row.turns for row in rows), month)}.")
        return "\n".join(lines)

    def _describe_usage(self, turns: int, used: list[dict[str, Any]]) -> str:
        def total(name: str) -> int:
            return sum(each.get(name) or 0 for each in used)

        cached = f" ({total('cached_tokens'):,} cached)" if total("cached_tokens") else ""
        tokens = f"{total('input_tokens'):,} input tokens{cached}, {total('output_tokens'):,} output tokens"
        costs = [each["cost"] for each in used if each.get("cost") is not None]
        cost = f", {sum(costs):,.4f} {self._currency}".rstrip() if costs else ", no price is set for the model"
        return f"{pluralize(turns, 'turn')}, {tokens}{cost}"

    async def _edit(self, call: CommandCall) -> str | None:
        self._message = await edit_text(call.argument or "")
        return None if self._message else "Nothing to send: the text is empty."

    async def _export(self, call: CommandCall) -> str:
        thread = self._threads.require()
        path = Path(call.argument or f"{thread.id}.md")
        formats: dict[str, ExportFormat] = {".jsonl": "jsonl", ".json": "json"}
        with output_file(str(path)) as out:
            async for piece in thread.export(formats.get(path.suffix, "markdown")):
                out.write(piece)
        return f"Exported to `{path}`."

    async def _help(self, call: CommandCall) -> str:
        lines = (line.partition(": ") for line in help_text("terminal", PREFIX).splitlines())
        rows = [(usage, text) for usage, _, text in lines]
        if self._prompts is not None:
            rows += self._prompts.help_lines()
        self._session.screen.columns(rows)
        return _KEYS

    async def _quit(self, call: CommandCall) -> str:
        raise Quit


def _with_lines(command: Command, more: str) -> Command:
    """Only a pinned text and a message to edit can have several lines."""
    if command.name not in ("context", "edit") or command.argument is None:
        raise InvalidInput(f"/{command.name} must be one line")
    return command._replace(argument=f"{command.argument}\n{more}")

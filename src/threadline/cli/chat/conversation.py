"""The lines of a chat: reads one after the other, executes commands and asks messages, until the user quits."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from threadline.cli.chat.backend import ChatBackend
from threadline.cli.chat.completions import Completions
from threadline.cli.chat.keyboard import Keyboard, LineInput, PipedInput
from threadline.cli.chat.session import ChatSession, Quit
from threadline.cli.chat.slash_commands import WORDS, SlashCommands
from threadline.cli.chat.status_line import StatusLine
from threadline.cli.printable import printable
from threadline.core.errors import StoreFailed, ThreadlineError

# For a list of models that Tab was pressed for.
_LIST_SECONDS = 2.0


class Conversation:
    def __init__(self, backend: ChatBackend) -> None:
        self._backend = backend
        self._prompts = None
        if backend.servers is not None and backend.servers.names:
            # Imported here: most chats have no MCP servers.
            from threadline.cli.chat.server_prompts import ServerPrompts  # noqa: PLC0415

            self._prompts = ServerPrompts(backend.servers)
        self._status = StatusLine()
        self._completions = Completions(WORDS)
        self._models: dict[str, Sequence[str]] = {}
        self.keyboard: LineInput = PipedInput()
        if sys.stdin.isatty():
            self.keyboard = Keyboard(backend.history, self._completions, self._status)

    async def run(self, session: ChatSession, first: str = "") -> None:
        """`first` is a message that the user gave with the command."""
        commands = SlashCommands(session, self._backend.currency, self._prompts)
        self._offer_completions(session)
        text: str | None = first or None
        if first:
            session.screen.line(f"> {printable(first, multiline=True)}")
        while True:
            await self._refresh(session, commands)
            if not text and session.typed_ahead:
                text = session.typed_ahead.pop(0)
                session.screen.line(f"> {printable(text, multiline=True)}")
            try:
                text = text or await self.keyboard.read_line("> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                if text.strip():
                    await self._take(session, commands, text)
            except Quit:
                return
            except ThreadlineError as exc:
                session.screen.error(str(exc))
            text = None

    async def _take(self, session: ChatSession, commands: SlashCommands, text: str) -> None:
        message = await commands.run(text)
        if message is None:
            # A command may have moved the thread. If the database fails here, the next question finds out.
            with contextlib.suppress(StoreFailed):
                await session.remember()
            return
        if self._prompts is not None:
            message, read = await self._prompts.with_resources(message)
            for name in read:
                session.screen.note(f"Added {name}")
        await session.ask(message)

    async def _refresh(self, session: ChatSession, commands: SlashCommands) -> None:
        await commands.summaries.note_new()
        if self.keyboard.is_terminal:
            agent = self._backend.agents.get(session.agent_id)
            await self._status.refresh(session, None if agent is None else agent.model)

    def _offer_completions(self, session: ChatSession) -> None:
        async def models() -> Sequence[str]:
            return await self._list_models(session.agent_id)

        async def summary_words() -> Sequence[str]:
            return ("edit",)

        self._completions.add_arguments("/agent", session.agent_ids)
        self._completions.add_arguments("/model", models)
        self._completions.add_arguments("/summary", summary_words)
        if self._prompts is not None:
            self._completions.add_commands(self._prompts.commands, self._prompts.arguments)
            self._completions.add_mentions(self._prompts.mentions)

    async def _list_models(self, agent_id: str) -> Sequence[str]:
        agent = self._backend.agents.get(agent_id)
        if agent is not None and not self._models.get(agent_id):
            # Imported here: only Tab after /model needs it.
            from threadline.cli.model_search import list_agent_models  # noqa: PLC0415

            self._models[agent_id] = await list_agent_models(agent, os.environ, _LIST_SECONDS)
        return self._models.get(agent_id, ())

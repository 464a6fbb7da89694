"""`/compact` and `/summary`: the summary that the agent is shown in the place of older messages."""

from __future__ import annotations

import contextlib
import datetime as dt

from threadline.cli.chat.editor import edit_text
from threadline.cli.chat.session import ChatSession
from threadline.cli.output import format_time, pluralize
from threadline.cli.printable import printable
from threadline.core.errors import InvalidInput, ThreadlineError
from threadline.core.turns import Summary
from threadline.messaging.command_executor import CommandCall, escape
from threadline.ports.gateway import GatewayThread

_NONE = "No summary yet: it is written when the context window is nearly full, or by `/compact`."


class SummaryCommands:
    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self._known: tuple[str, dt.datetime | None] | None = None
        """The thread whose summary was seen last, and when that was written."""

    async def compact(self, call: CommandCall) -> str:
        thread = self._require()
        summary = await thread.compact()
        if summary is None:
            return "Nothing to summarise: this chat is short enough."
        self._known = (thread.id, summary.created_at)
        return self._describe(summary)

    async def summary(self, call: CommandCall) -> str | None:
        thread = self._require()
        current = await thread.summary()
        if call.argument not in (None, "edit"):
            raise InvalidInput(f"/summary takes nothing or `edit`, got {call.argument!r}")
        if current is None:
            return _NONE
        if call.argument == "edit":
            return await self._edit(thread, current)
        covered = pluralize(current.point.seq + 1, "message")
        written = f"{printable(current.label)}, {format_time(current.created_at)}"
        self._session.screen.note(f"In the place of the first {covered} the agent is shown this ({written}):")
        self._session.screen.line(printable(current.text, multiline=True))
        return "`/summary edit` changes it."

    async def _edit(self, thread: GatewayThread, shown: Summary) -> str:
        text = await edit_text(shown.text)
        if text is None or text == shown.text.rstrip("\n"):
            return "Nothing was changed."
        if await thread.summary() != shown:
            self._session.screen.line(printable(text, multiline=True))
            raise InvalidInput("the summary was written again while you edited it: your text above was not stored")
        stored = await thread.set_summary(text)
        self._known = (thread.id, stored.created_at)
        return "Stored: the agent is shown your text from now on."

    async def note_new(self) -> None:
        """Says so if a summary was written by itself since the last question."""
        thread = self._session.thread
        if thread is None:
            return
        with contextlib.suppress(ThreadlineError):
            summary = await thread.summary()
            written_at = None if summary is None else summary.created_at
            before, self._known = self._known, (thread.id, written_at)
            if summary is not None and before is not None and before[0] == thread.id and before != self._known:
                self._session.screen.reply(f"The window was nearly full. {self._describe(summary)}")

    def _describe(self, summary: Summary) -> str:
        covered = pluralize(summary.point.seq + 1, "message")
        if summary.source == "extract":
            what = f"No model could write a summary: the agent is shown the beginnings of the first {covered} instead."
            more = "`/summary edit` lets you write a better one."
        else:
            what = f"{escape(summary.model or 'The agent')} summarised the first {covered} for the agent."
            more = "`/summary` shows it, `/summary edit` changes it."
        return f"{what} No message is deleted. {more}"

    def _require(self) -> GatewayThread:
        if self._session.thread is None:
            raise InvalidInput("no chat yet: send a message first, or open one with /open")
        return self._session.thread

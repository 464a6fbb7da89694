"""Prints a chat: text as it arrives, tool calls and results as one line each, notes, warnings and errors."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import IO

import msgspec

from threadline.cli.chat.markdown import MarkdownStream
from threadline.cli.chat.word_wrap import shorten_lines, wrap_words
from threadline.cli.output import display_width
from threadline.cli.printable import printable, shorten
from threadline.core import events
from threadline.core.events import Event
from threadline.core.messages import Message
from threadline.core.parts import Part, TextPart, ToolPart
from threadline.core.turns import TurnInfo

_DIM, _RED, _GREEN, _YELLOW, _RESET = "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_LONGEST_LINE = 300
_SENT_LINES = 20
_MARKDOWN = re.compile(r"\\(?P<escaped>.)|`(?P<code>[^`]*)`|(?P<bold>\*\*)")


class Screen:
    """Text of models and tools is escaped before it is printed. `line` and `note` expect text that is. Warnings and
    errors go to `diagnostics` (default: `out`), so that a script that captures the output gets only the answer."""

    def __init__(
        self, out: IO[str] | None = None, *, diagnostics: IO[str] | None = None, colours: bool | None = None
    ) -> None:
        self._out = out or sys.stdout
        self._diagnostics = diagnostics
        self.colours = self._supports_colours() if colours is None else colours
        self._markdown = self._new_markdown()
        self._open: str | None = None

    def _new_markdown(self) -> MarkdownStream:
        """Wrapped only for a terminal: a file or a pipe gets the text as it is."""
        return MarkdownStream(colours=self.colours, width=self._width)

    def _supports_colours(self) -> bool:
        return self._out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def begin_reply(self, turn: TurnInfo) -> None:
        """Called when the question is stored, before the events of its reply."""

    def print_event(self, event: Event) -> None:
        match event:
            case events.TextDelta():
                self._begin("text")
                self._write(self._markdown.feed(printable(event.text, multiline=True)))
            case events.ReasoningDelta():
                self._begin("reasoning")
                self._write(self._dim(printable(event.text, multiline=True)))
            case events.ToolCall():
                given = msgspec.json.encode(event.input).decode()
                self.line(self._dim(f"⚙ {printable(event.name)} {shorten(printable(given), _LONGEST_LINE)}"))
            case events.ToolResult() if not event.preliminary:
                result = msgspec.json.encode(event.output).decode()
                self.line(self._dim(f"  → {shorten(printable(result), _LONGEST_LINE)}"))
            case events.ToolError():
                self.line(self._dim(f"  → failed: {shorten(printable(event.error), _LONGEST_LINE)}"))
            case events.ToolDenied():
                self.line(self._dim("  → not allowed" + (f": {printable(event.reason)}" if event.reason else "")))
            case events.Source():
                self.line(self._dim(f"source: {printable(event.title or event.url)} {printable(event.url)}"))
            case events.SourceDocument():
                self.line(self._dim(f"source: {printable(event.title)}"))
            case events.File():
                self.line(self._dim(f"file: {printable(event.filename or event.media_type)}"))
            case events.Status() | events.Restart():
                self._print_status(event)
            case events.Failure():
                self.error(event.error)
            case _:
                pass

    def _print_status(self, event: events.Status | events.Restart) -> None:
        if isinstance(event, events.Restart):
            self.note("The reply was interrupted and starts again:")
        else:
            # What the agent waits for, or lacks, such as an MCP server that is down: not part of the answer.
            self._diagnose(_DIM, printable(event.text))

    def line(self, text: str) -> None:
        self.end()
        self._write(text + "\n")

    def columns(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and what they mean. In a narrow window the meaning is on a line of its own."""
        room = self._width
        width = max((display_width(name) for name, _ in rows), default=0)
        is_narrow = room is not None and room < 2 * width
        for name, text in rows:
            gap = "\n    " if is_narrow else " " * (width - display_width(name) + 2)
            self.line(wrap_words(f"{name}{gap}{text}", room, indent=4 if is_narrow else width + 2))

    def show_sent(self, message: str) -> None:
        """A message that the user did not type."""
        for line in shorten_lines(printable(message, multiline=True), _SENT_LINES).splitlines():
            self.note(f"│ {line}")

    def print_diff(self, diff: str) -> None:
        for line in printable(diff, multiline=True).splitlines():
            colour = {"+": _GREEN, "-": _RED, "@": _DIM}.get(line[:1], "")
            self.line(self._colour(colour, line) if colour else line)

    def note(self, text: str, *, is_wrapped: bool = True) -> None:
        """Not wrapped, a command can be copied from a narrow window."""
        self.line(self._dim(self.wrap(text) if is_wrapped else text))

    def wrap(self, text: str) -> str:
        """Without the last column: the cursor may follow."""
        return wrap_words(text, None if self._width is None else self._width - 1)

    @property
    def _width(self) -> int | None:
        return shutil.get_terminal_size().columns if self._out.isatty() else None

    def reply(self, markdown: str) -> None:
        """Prints the reply of a command, which is written in Markdown for chats, as a note in plain text."""
        plain = _MARKDOWN.sub(lambda found: found["escaped"] or found["code"] or "", markdown)
        self.note(printable(plain, multiline=True))

    def print_message(self, message: Message) -> None:
        """A stored message, with a mark if it is a reply that is not complete."""
        self.line(f"{message.role}:")
        for part in message.parts:
            self._print_part(part)
        self.end()
        if message.incomplete is not None:
            self.note(f"({message.incomplete})")

    def _print_part(self, part: Part) -> None:
        match part:
            case TextPart():
                self.print_event(events.TextDelta(part.text))
            case ToolPart():
                self.print_event(events.ToolCall(part.call_id, part.name, part.input_value()))
                if part.state == "output-available":
                    self.print_event(events.ToolResult(part.call_id, part.output_value()))
                elif part.error is not None:
                    self.print_event(events.ToolError(part.call_id, part.error))
            case _:
                pass

    def warn(self, text: str) -> None:
        self._diagnose(_YELLOW, f"warning: {printable(text)}")

    def error(self, text: str) -> None:
        self._diagnose(_RED, f"error: {printable(text)}")

    def _diagnose(self, colour: str, text: str) -> None:
        self.end()
        if self._diagnostics is None:
            self._write(self._colour(colour, wrap_words(text, self._width)) + "\n")
        else:
            print(text, file=self._diagnostics, flush=True)

    def end(self) -> None:
        """Ends the current text, so that the next output starts on its own line."""
        if self._open is not None:
            self._write(self._markdown.flush() + "\n")
            self._open = None

    def _begin(self, kind: str) -> None:
        if self._open not in (None, kind):
            self.end()
        if self._open is None:
            # The window may have been resized since the last text.
            self._markdown = self._new_markdown()
        self._open = kind

    def _dim(self, text: str) -> str:
        return self._colour(_DIM, text)

    def _colour(self, code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if self.colours else text

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

"""The export formats: threads as JSON Lines (also for import), and as Markdown for people.

A file is a sequence of blocks, one per thread: a `thread` line; a `turn` line per turn; for each timeline a `timeline`
line and one `message` line per message of its own (or a `hidden` line for some that were deleted); `saved_point` and
`summary` lines; and an `end` line with the number of messages and a SHA-256 over the block's lines, which detects
truncated or edited files. Lines end with a single newline. `core.history` says what they contain. Timelines are
numbered, so that the same thread gives the same bytes in every database. Version 1 had only the present history:
`thread`, `message` and `end` lines.

An import is history from a file that anybody may have written: nothing in it can approve, run or instruct anything
(`core.history.check_message`, `check_thread`).
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias

import msgspec

from threadline.core import jsontext
from threadline.core.history import (
    HiddenRecord,
    PastTurn,
    SavedPointRecord,
    SummaryRecord,
    ThreadRecord,
    TimelineRecord,
)
from threadline.core.messages import Message, to_ui
from threadline.core.parts import (
    DataPart,
    FilePart,
    OtherPart,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    TextPart,
    ToolPart,
)
from threadline.core.sanitize import visible
from threadline.core.threads import Thread

ExportFormat: TypeAlias = Literal["jsonl", "json", "markdown"]

VERSION = 2


class Writer:
    """Writes the block of one thread, line by line."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._count = 0

    def thread(self, record: ThreadRecord) -> bytes:
        return self._line(jsontext.dump({"threadline": VERSION, "thread": plain_fields(record)}, "thread"))

    def item(self, item: PastTurn | TimelineRecord | HiddenRecord | SavedPointRecord | SummaryRecord) -> bytes:
        return self._line(jsontext.dump({_NAMES[type(item)]: plain_fields(item)}, "line"))

    def message(self, message: Message) -> bytes:
        self._count += 1
        created = jsontext.dump(message.created_at.isoformat(), "time")
        turn = b"" if message.turn_id is None else b',"turn":' + jsontext.dump(message.turn_id, "turn")
        return self._line(b'{"createdAt":' + created + turn + b',"message":' + to_ui(message) + b"}")

    def end(self) -> bytes:
        end = {"messages": self._count, "sha256": self._hash.hexdigest()}
        return jsontext.dump({"end": end}, "end") + b"\n"

    def _line(self, line: bytes) -> bytes:
        self._hash.update(line + b"\n")
        return line + b"\n"


_NAMES: dict[type, str] = {
    PastTurn: "turn",
    TimelineRecord: "timeline",
    HiddenRecord: "hidden",
    SavedPointRecord: "saved_point",
    SummaryRecord: "summary",
}


def plain_fields(record: msgspec.Struct) -> dict[str, Any]:
    """Without those that are empty, in the order of the struct."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in plain.items() if value is not None and value is not False and value != {}}


def markdown_head(thread: Thread) -> str:
    lines = [f"# {visible(thread.title or 'Untitled thread')}", ""]
    lines += [f"- Thread: `{thread.id}`", f"- Started: {thread.created_at:%Y-%m-%d %H:%M} UTC"]
    lines += [f"- Messages: {thread.message_count}"]
    return "\n".join(lines) + "\n"


def markdown_message(message: Message) -> str:
    """One message as Markdown. The model's own Markdown is not escaped; control characters are, because people print
    such files to terminals, which would execute them."""
    mark = "" if message.incomplete is None else f" ({message.incomplete})"
    head = f"\n## {message.role.capitalize()}, {message.created_at:%Y-%m-%d %H:%M} UTC{mark}\n"
    return f"{head}\n{markdown_body(message)}"


def markdown_body(message: Message) -> str:
    """What was said, without who said it and when."""
    blocks: list[str] = []
    for part in message.parts:
        match part:
            case TextPart():
                blocks.append(part.text + "\n")
            case ReasoningPart():
                blocks.append("\n".join(f"> {line}" for line in part.text.splitlines()) + "\n")
            case ToolPart():
                blocks.append(_markdown_tool(part))
            case FilePart():
                blocks.append(f"*File: {part.filename or part.media_type}*\n")
            case SourceUrlPart():
                blocks.append(f"*Source: {part.title or part.url} <{part.url}>*\n")
            case SourceDocumentPart():
                blocks.append(f"*Source: {part.title}*\n")
            case DataPart():
                data = jsontext.dump(part.data, "data part").decode()
                blocks.append(f"*data-{part.name}*\n\n```json\n{data}\n```\n")
            case OtherPart():
                blocks.append(f"*{part.type}*\n")
            case _:
                pass
    return visible("\n".join(blocks))


def _markdown_tool(part: ToolPart) -> str:
    outcome = part.error or (part.output or b"no result").decode()
    called = (part.input or b"").decode()
    return f"**Tool {part.name}** ({part.state})\n\n```json\n{called}\n```\n\n```json\n{outcome}\n```\n"

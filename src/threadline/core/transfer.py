"""The export formats: threads as JSON Lines (also for import), and as Markdown for people.

A file is a sequence of blocks, one per thread: a `thread` line, one `message` line per message, and an `end` line with
their number and a SHA-256 over the block's lines, which detects truncated or edited files. Lines end with a single
newline.

An import is history from a file that anybody may have written: nothing in it can approve, run or instruct anything.
Messages of role `system` and parts of an unknown type are refused; a thread's system prompt goes to its metadata, where
no agent is shown it; an approval that was open when the file was written can no longer be given. `keep_system` is for
the operator, who vouches for the system texts of a file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidImport, InvalidInput, LimitExceeded, ThreadlineError, quote
from threadline.core.history import IMPORTED_PROMPT, check_message
from threadline.core.ids import check_id
from threadline.core.messages import Message, NewMessage, to_ui
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
from threadline.core.threads import NewThread, Thread

ExportFormat: TypeAlias = Literal["jsonl", "json", "markdown"]

VERSION = 1
_THREAD_FIELDS = ("id", "state_key", "title", "agent_id", "model", "system_prompt", "working_dir", "metadata")


class ThreadLine(msgspec.Struct, frozen=True):
    thread: NewThread


class MessageLine(msgspec.Struct, frozen=True):
    message: NewMessage


class EndLine(msgspec.Struct, frozen=True):
    messages: int


class Writer:
    """Writes the block of one thread, line by line."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._count = 0

    def thread(self, thread: Thread) -> bytes:
        fields = {name: getattr(thread, name) for name in _THREAD_FIELDS}
        kept = {name: value for name, value in fields.items() if value not in (None, {})}
        return self._line(jsontext.dump({"threadline": VERSION, "thread": kept}, "thread"))

    def message(self, message: Message) -> bytes:
        self._count += 1
        created = jsontext.dump(message.created_at.isoformat(), "time")
        return self._line(b'{"createdAt":' + created + b',"message":' + to_ui(message) + b"}")

    def end(self) -> bytes:
        end = {"messages": self._count, "sha256": self._hash.hexdigest()}
        return jsontext.dump({"end": end}, "end") + b"\n"

    def _line(self, line: bytes) -> bytes:
        self._hash.update(line + b"\n")
        return line + b"\n"


class Reader:
    """Reads and validates lines in order. InvalidImport names the invalid line."""

    def __init__(self, longest_line: int, *, keep_system: bool = False) -> None:
        self._longest = longest_line
        self._keep_system = keep_system
        self._number = 0
        self._reset()

    def _reset(self) -> None:
        self._open = False
        self._hash = hashlib.sha256()
        self._ids: set[str] = set()

    def lines(self, raw_lines: Iterable[bytes]) -> Iterator[ThreadLine | MessageLine | EndLine]:
        for raw in raw_lines:
            self._number += 1
            try:
                line = self._read(raw)
            except ThreadlineError as exc:
                raise InvalidImport(self._number, str(exc)) from exc
            yield line
        if self._open:
            raise InvalidImport(self._number, "file was cut short: it has no `end` line for this thread")
        if self._number == 0:
            raise InvalidImport(1, "file is empty")

    def _read(self, raw: bytes) -> ThreadLine | MessageLine | EndLine:
        if len(raw) > self._longest:
            raise LimitExceeded("line size in bytes", self._longest, len(raw))
        if not raw.endswith(b"\n"):
            raise InvalidInput("line was cut short: it must end with a newline")
        if b"\r" in raw or b"\x00" in raw:
            raise InvalidInput("line must not contain a carriage return or a NUL byte")
        value = jsontext.parse(raw[:-1], "line")
        match value:
            case {"threadline": version, "thread": dict(fields)} if not self._open:
                line = _thread_line(version, fields if self._keep_system else _without_system_prompt(fields))
                self._open = True
                self._hash.update(raw)
                return line
            case {"message": dict(fields), "createdAt": str(created)} if self._open:
                return self._message(fields, created, raw)
            case {"end": {"messages": int(count), "sha256": str(digest)}} if self._open:
                return self._end(count, digest)
        expected = "a `message` or `end` line" if self._open else "a `thread` line"
        raise InvalidInput(f"line must be {expected}, got {_describe(value)}")

    def _message(self, fields: dict[str, Any], created: str, raw: bytes) -> MessageLine:
        if unknown := fields.keys() - {"id", "role", "metadata", "parts"}:
            raise InvalidInput(f"message must not have the key {quote(min(unknown))}")
        if not isinstance(fields.get("parts"), list):
            raise InvalidInput(f"`parts` must be an array, got {jsontext.type_of(fields.get('parts'))}")
        message_id = check_id("message", str(fields.get("id")))
        if message_id in self._ids:
            raise InvalidInput(f"message id must be unique in its thread, got {quote(message_id)} twice")
        self._ids.add(message_id)
        self._hash.update(raw)
        message = NewMessage(
            role=fields.get("role"),  # type: ignore[arg-type]  # the Sealer rejects any other value
            parts=_raw_parts(raw),
            id=message_id,
            metadata=fields.get("metadata"),
            created_at=_parse_time(created),
        )
        return MessageLine(check_message(message, keep_system=self._keep_system))

    def _end(self, count: int, digest: str) -> EndLine:
        if count != len(self._ids):
            raise InvalidInput(f"thread must have {count} messages by its `end` line, got {len(self._ids)}")
        if digest != self._hash.hexdigest():
            raise InvalidInput("thread was changed after its export: its lines do not match the SHA-256 here")
        self._reset()
        return EndLine(count)


def _describe(value: Any) -> str:
    return f"the keys {quote(', '.join(value))}" if isinstance(value, dict) else jsontext.type_of(value)


class _RawMessage(msgspec.Struct):
    parts: msgspec.Raw


class _RawLine(msgspec.Struct):
    message: _RawMessage


def _raw_parts(raw: bytes) -> bytes:
    return bytes(msgspec.json.decode(raw, type=_RawLine).message.parts)


def _without_system_prompt(fields: dict[str, Any]) -> dict[str, Any]:
    metadata = fields.get("metadata", {})
    if fields.get("system_prompt") is None or not isinstance(metadata, dict):
        return fields
    kept = {name: value for name, value in fields.items() if name != "system_prompt"}
    return {**kept, "metadata": {**metadata, IMPORTED_PROMPT: fields["system_prompt"]}}


def _thread_line(version: Any, fields: dict[str, Any]) -> ThreadLine:
    if version != VERSION:
        raise InvalidInput(f"format version must be {VERSION}, got {quote(version)}")
    try:
        return ThreadLine(msgspec.convert(fields, _ImportedThread).as_new())
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"`thread` is not valid: {exc}") from exc


class _ImportedThread(NewThread, frozen=True, forbid_unknown_fields=True):
    def as_new(self) -> NewThread:
        return NewThread(**{name: getattr(self, name) for name in _THREAD_FIELDS})


def _parse_time(text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"`createdAt` must be an ISO 8601 time, got {quote(text)}") from None
    if moment.tzinfo is None:
        raise InvalidInput(f"`createdAt` must have a time zone, got {quote(text)}")
    return moment


def markdown_head(thread: Thread) -> str:
    lines = [f"# {visible(thread.title or 'Untitled thread')}", ""]
    lines += [f"- Thread: `{thread.id}`", f"- Started: {thread.created_at:%Y-%m-%d %H:%M} UTC"]
    lines += [f"- Messages: {thread.message_count}"]
    return "\n".join(lines) + "\n"


def markdown_message(message: Message) -> str:
    """One message as Markdown. The model's own Markdown is not escaped; control characters are, because people print
    such files to terminals, which would execute them."""
    mark = "" if message.incomplete is None else f" ({message.incomplete})"
    blocks = [f"\n## {message.role.capitalize()}, {message.created_at:%Y-%m-%d %H:%M} UTC{mark}\n"]
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

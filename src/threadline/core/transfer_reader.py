"""Reads the export format: every line is checked, and a bad one is named by its number.

A file is read twice: `blocks` goes through all of it, so that nothing of a bad file is stored, and notes where each
thread begins; an import then opens the file again at each thread.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from threadline.core import jsontext
from threadline.core.checks import check_time
from threadline.core.errors import InvalidImport, InvalidInput, LimitExceeded, ThreadlineError, quote
from threadline.core.history import (
    MAIN,
    HiddenRecord,
    HistoryItem,
    MessageRecord,
    PastTurn,
    RecordPoint,
    SavedPointRecord,
    SummaryRecord,
    ThreadRecord,
    TimelineRecord,
    check_message,
)
from threadline.core.ids import check_id
from threadline.core.messages import NewMessage
from threadline.core.transfer import VERSION
from threadline.core.user_archive import PinnedText, UserBlockReader, is_user_line

T = TypeVar("T", bound=msgspec.Struct)
_OLD_FIELDS = frozenset(("id", "state_key", "title", "agent_id", "model", "system_prompt", "working_dir", "metadata"))
"""Of a thread in version 1, which had neither times nor timelines."""


class Place(NamedTuple):
    """Where a block begins: a byte of the file, and the number of lines before it."""

    offset: int = 0
    lines: int = 0


START = Place()


class _ThreadFields(ThreadRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _TurnFields(PastTurn, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _TimelineFields(TimelineRecord, frozen=True, forbid_unknown_fields=True):
    pass


class _PointFields(SavedPointRecord, frozen=True, forbid_unknown_fields=True):
    pass


class _SummaryFields(SummaryRecord, frozen=True, forbid_unknown_fields=True):
    pass


class Block(NamedTuple):
    """One thread. `items` can be read once, and must be before the next block."""

    place: Place
    thread: ThreadRecord
    items: Iterator[HistoryItem]


class Reader:
    def __init__(self, longest_line: int, place: Place = START, *, keep_system: bool = False) -> None:
        self._longest = longest_line
        self._keep_system = keep_system
        self._offset, self.line = place
        self.pinned: list[PinnedText] = []
        """Of the parts about users that were read."""

    def blocks(self, raw_lines: Iterable[bytes]) -> Iterator[Block]:
        """The threads of the file. InvalidImport names the invalid line."""
        lines = iter(raw_lines)
        for raw in lines:
            place = Place(self._offset, self.line)
            block, user = _BlockReader(self._keep_system), UserBlockReader()
            thread = self._checked(raw, lambda raw, value, block=block, user=user: _begin(raw, value, block, user))
            if thread is None:
                self._read_user(lines, user)
                continue
            yield Block(place, thread, self._items(lines, block))
            assert block.is_over, "the items of a thread must be read before the next one"
        if self.line == 0:
            raise InvalidImport(1, "file is empty")

    def _read_user(self, lines: Iterator[bytes], user: UserBlockReader) -> None:
        for raw in lines:
            if not self._checked(raw, user.read_line):
                self.pinned += user.pinned
                return
        raise InvalidImport(self.line, "file was cut short: it has no `end` line for the user")

    def _items(self, lines: Iterator[bytes], block: _BlockReader) -> Iterator[HistoryItem]:
        for raw in lines:
            item = self._checked(raw, block.read_item)
            if item is None:
                return
            yield item
        raise InvalidImport(self.line, "file was cut short: it has no `end` line for this thread")

    def _checked(self, raw: bytes, read: Any) -> Any:
        self.line += 1
        self._offset += len(raw)
        try:
            if len(raw) > self._longest:
                raise LimitExceeded("line size in bytes", self._longest, len(raw))
            if not raw.endswith(b"\n"):
                raise InvalidInput("line was cut short: it must end with a newline")
            if b"\r" in raw or b"\x00" in raw:
                raise InvalidInput("line must not contain a carriage return or a NUL byte")
            return read(raw, jsontext.parse(raw[:-1], "line"))
        except ThreadlineError as exc:
            raise InvalidImport(self.line, str(exc)) from exc


def _begin(raw: bytes, value: Any, block: _BlockReader, user: UserBlockReader) -> ThreadRecord | None:
    """None for the first line of the part about a user."""
    if not is_user_line(value):
        return block.read_thread(raw, value)
    user.read_line(raw, value)
    return None


class _Line:
    """A timeline of the file: how many messages its history has, and the ids of its own."""

    __slots__ = ("count", "ids", "parent")

    def __init__(self, parent: RecordPoint | None) -> None:
        self.parent = parent
        self.count = 0 if parent is None else parent.seq + 1
        self.ids: dict[str, int] = {}


class _BlockReader:
    def __init__(self, keep_system: bool) -> None:
        self._keep_system = keep_system
        self._hash = hashlib.sha256()
        self._version = VERSION
        self._messages = 0
        self._lines: dict[str, _Line] = {}
        self._present: _Line | None = None
        self.is_over = False

    def read_thread(self, raw: bytes, value: Any) -> ThreadRecord:
        match value:
            case {"threadline": int(version), "thread": dict(fields)} if version in (1, VERSION):
                self._hash.update(raw)
                self._version = version
                if version == 1 and (unknown := fields.keys() - _OLD_FIELDS):
                    raise InvalidInput(f"`thread` must not have the key {quote(min(unknown))}")
                return _record(
                    "thread", fields if version == 1 else {"is_title_suggested": False, **fields}, _ThreadFields
                )
            case {"threadline": version, "thread": dict()}:
                raise InvalidInput(f"format version must be 1 or {VERSION}, got {quote(version)}")
        raise InvalidInput(f"line must be a `thread` line, got {_describe(value)}")

    def read_item(self, raw: bytes, value: Any) -> HistoryItem | None:
        """None for the `end` line."""
        item: HistoryItem
        match value:
            case {"end": {"messages": int(count), "sha256": str(digest)}}:
                self._end(count, digest)
                return None
            case {"message": dict(fields), "createdAt": str(created)}:
                item = self._message(fields, created, value.get("turn"), raw)
            case _ if self._version == 1:
                raise InvalidInput(f"line must be a `message` or `end` line, got {_describe(value)}")
            case _:
                item = self._other(value)
        self._hash.update(raw)
        return item

    def _other(self, value: Any) -> HistoryItem:
        match value:
            case {"turn": dict(fields)}:
                turn = _record("turn", fields, _TurnFields)
                check_id("turn", turn.id)
                return turn
            case {"timeline": dict(fields)}:
                line = _record("timeline", fields, _TimelineFields)
                if line.key in self._lines:
                    raise InvalidInput(f"timeline must have a key of its own, got {quote(line.key)} twice")
                self._check_point(line.parent)
                self._present = self._lines[line.key] = _Line(line.parent)
                return line
            case {"hidden": {"count": int(count)}} if count > 0:
                self._line_of_messages().count += count
                return HiddenRecord(count)
            case {"saved_point": dict(fields)}:
                saved = _record("saved_point", fields, _PointFields)
                self._check_point(saved.point)
                return saved
            case {"summary": dict(fields)}:
                summary = _record("summary", fields, _SummaryFields)
                self._check_point(summary.point)
                return summary
        expected = "a `turn`, `timeline`, `message`, `hidden`, `saved_point`, `summary` or `end` line"
        raise InvalidInput(f"line must be {expected}, got {_describe(value)}")

    def _check_point(self, point: RecordPoint | None) -> None:
        if point is None:
            return
        line = self._lines.get(point.timeline)
        if line is None:
            raise InvalidInput(f"timeline must be one that came before, got {quote(point.timeline)}")
        if not -1 <= point.seq < line.count:
            where = f"on timeline {quote(point.timeline)}"
            raise InvalidInput(f"`seq` must be -1 to {line.count - 1} {where}, got {point.seq}")

    def _message(self, fields: dict[str, Any], created: str, turn_id: Any, raw: bytes) -> MessageRecord:
        if unknown := fields.keys() - {"id", "role", "metadata", "parts"}:
            raise InvalidInput(f"message must not have the key {quote(min(unknown))}")
        if not isinstance(fields.get("parts"), list):
            raise InvalidInput(f"`parts` must be an array, got {jsontext.type_of(fields.get('parts'))}")
        if turn_id is not None:
            check_id("turn", turn_id)
        message_id = check_id("message", str(fields.get("id")))
        self._count(message_id)
        message = NewMessage(
            role=fields.get("role"),  # type: ignore[arg-type]  # the Sealer rejects any other value
            parts=_raw_parts(raw),
            id=message_id,
            metadata=fields.get("metadata"),
            created_at=_parse_time(created),
        )
        return MessageRecord(check_message(message, keep_system=self._keep_system), turn_id)

    def _count(self, message_id: str) -> None:
        present = line = self._line_of_messages()
        below = present.count
        while True:
            if line.ids.get(message_id, below) < below:
                raise InvalidInput(f"message id must be unique in its thread, got {quote(message_id)} twice")
            if line.parent is None:
                break
            below, line = min(below, line.parent.seq + 1), self._lines[line.parent.timeline]
        present.ids[message_id] = present.count
        present.count += 1
        self._messages += 1

    def _line_of_messages(self) -> _Line:
        if self._present is None:
            self._present = self._lines[MAIN] = _Line(None)
        return self._present

    def _end(self, count: int, digest: str) -> None:
        if count != self._messages:
            raise InvalidInput(f"thread must have {count} messages by its `end` line, got {self._messages}")
        if digest != self._hash.hexdigest():
            raise InvalidInput("thread was changed after its export: its lines do not match the SHA-256 here")
        self.is_over = True


def _describe(value: Any) -> str:
    return f"the keys {quote(', '.join(value))}" if isinstance(value, dict) else jsontext.type_of(value)


def _record(name: str, fields: dict[str, Any], kind: type[T]) -> T:
    try:
        found = msgspec.convert(fields, kind)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"`{name}` is not valid: {exc}") from exc
    for field in kind.__struct_fields__:
        if field.endswith("_at") and (moment := getattr(found, field)) is not None:
            check_time(field, moment)
    return found


class _RawMessage(msgspec.Struct):
    parts: msgspec.Raw


class _RawLine(msgspec.Struct):
    message: _RawMessage


def _raw_parts(raw: bytes) -> bytes:
    return bytes(msgspec.json.decode(raw, type=_RawLine).message.parts)


def _parse_time(text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"`createdAt` must be an ISO 8601 time, got {quote(text)}") from None
    if moment.tzinfo is None:
        raise InvalidInput(f"`createdAt` must have a time zone, got {quote(text)}")
    return moment

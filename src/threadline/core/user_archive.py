"""The block of an archive that is about the user: everything of theirs that is not a thread.

The line `user` is followed by a line for each pinned text, link, place, token, sign-in, day of usage and piece of a
value, and by an `end` line with the number of lines and a SHA-256. Tokens and sign-ins are named, without what
authenticates; values are in base64.

Of this block only pinned texts can be imported. A file may come from anybody: it cannot give access, count usage, or
set the state of programs.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any, Literal, TypeAlias

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, quote
from threadline.core.ids import check_id, check_text
from threadline.core.transfer import VERSION, plain_fields

ArchiveLine: TypeAlias = Literal["pinned_text", "link", "place", "token", "sign_in", "usage", "value"]
_LINES: tuple[ArchiveLine, ...] = ("pinned_text", "link", "place", "token", "sign_in", "usage", "value")


class UserRecord(msgspec.Struct, frozen=True):
    id: str
    role: str
    display_name: str | None = None
    disabled_at: dt.datetime | None = None


class PinnedText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent_id: str
    context: str
    created_at: dt.datetime
    updated_at: dt.datetime


class ValueRecord(msgspec.Struct, frozen=True):
    """A piece of a value. `thread_id` is None for a value of the user; `data` is in base64 as JSON."""

    namespace: str
    key: str
    version: int
    updated_at: dt.datetime
    piece: int
    pieces: int
    data: bytes
    thread_id: str | None = None
    expires_at: dt.datetime | None = None


class UserBlockWriter:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._count = 0

    def user(self, record: UserRecord) -> bytes:
        return self._line({"threadline": VERSION, "user": plain_fields(record)})

    def line(self, name: ArchiveLine, record: msgspec.Struct) -> bytes:
        # The owner is the user of the block.
        fields = {key: value for key, value in plain_fields(record).items() if key not in ("owner_id", "user_id")}
        return self._line({name: fields})

    def end(self) -> bytes:
        return jsontext.dump({"end": {"lines": self._count, "sha256": self._hash.hexdigest()}}, "end") + b"\n"

    def _line(self, content: dict[str, Any]) -> bytes:
        self._count += 1
        line = jsontext.dump(content, "line") + b"\n"
        self._hash.update(line)
        return line


def is_user_line(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("user"), dict) and "threadline" in value


class UserBlockReader:
    """Checks the lines of a block, and keeps its pinned texts."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._count = 0
        self.pinned: list[PinnedText] = []

    def read_line(self, raw: bytes, value: Any) -> bool:
        """False for the `end` line. InvalidInput."""
        match value:
            case {"threadline": version, "user": dict()} if self._count == 0:
                if version != VERSION:
                    raise InvalidInput(f"format version must be {VERSION}, got {quote(version)}")
            case {"end": {"lines": int(count), "sha256": str(digest)}} if self._count:
                self._check_end(count, digest)
                return False
            case {"pinned_text": dict(fields)}:
                self.pinned.append(_pinned_text(fields))
            case dict() if len(value) == 1 and next(iter(value)) in _LINES:
                pass
            case _:
                shown = f"the keys {quote(', '.join(value))}" if isinstance(value, dict) else jsontext.type_of(value)
                raise InvalidInput(f"line must be about the user ({', '.join(_LINES)}) or an `end` line, got {shown}")
        self._count += 1
        self._hash.update(raw)
        return True

    def _check_end(self, count: int, digest: str) -> None:
        if count != self._count:
            raise InvalidInput(f"the part about the user must have {count} lines by its `end` line, got {self._count}")
        if digest != self._hash.hexdigest():
            raise InvalidInput("the part about the user was changed after its export: it does not match its SHA-256")


def _pinned_text(fields: dict[str, Any]) -> PinnedText:
    try:
        found = msgspec.convert(fields, PinnedText)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"`pinned_text` is not valid: {exc}") from exc
    check_id("agent", found.agent_id)
    check_text("context", found.context)
    return found

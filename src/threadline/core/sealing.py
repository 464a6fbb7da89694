"""Sealing: the one gate between what a caller gave and what is stored.

A store takes only sealed messages and clean texts, and only a `Sealer` makes them, so nothing can be stored that was
not checked against the limits and passed through the masker. Sealing turns parts into the bytes that will be stored;
after it, nothing is rewritten.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, NewType, Protocol

import msgspec

from threadline.core import jsontext
from threadline.core import parts as parts_
from threadline.core.checks import check_choice
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.ids import check_characters, check_id, new_id
from threadline.core.messages import ROLES, NewMessage, Role, to_us
from threadline.core.parts import OtherPart, Part, TextPart, ToolPart

CleanText = NewType("CleanText", str)
"""A text that has passed a Sealer."""
CleanJson = NewType("CleanJson", bytes)
"""A JSON object that has passed a Sealer."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one value may be at most. Each answers with an error that names it."""

    message_bytes: int = 1_048_576
    message_parts: int = 1_000
    metadata_bytes: int = 65_536
    text_bytes: int = 1_048_576
    messages_per_append: int = 10_000
    messages_per_thread: int = 1_000_000


class TextStream(Protocol):
    def feed(self, text: str) -> str:
        """What can be shown now; what could still become a secret is held back."""
        ...

    def flush(self) -> str:
        """The rest, at the end of the text; the next piece begins a new one."""
        ...


class Masker(Protocol):
    """Removes secrets. Pure, never raises on any text, returns the very same object where there is nothing to mask."""

    def mask_text(self, text: str) -> str: ...

    def mask_json(self, value: Any) -> Any:
        """The same for every string inside plain JSON data, and for values under telling keys; the input is kept."""
        ...

    def may_hold(self, raw: bytes) -> bool:
        """False only if `mask_json` would change nothing in what this JSON says. Cheap, because most JSON is clean."""
        ...

    def stream(self) -> TextStream:
        """For one text that arrives in pieces. Together they come out as `mask_text` of the whole."""
        ...


class Sealed(msgspec.Struct, frozen=True):
    """A message ready to be stored: checked, masked, encoded."""

    id: str
    role: Role
    parts_json: bytes
    metadata_json: bytes | None
    text: str
    """The words of the first user message become the thread's title; search reads the stored parts."""
    created_us: int | None = None
    """When it was said, if that was before now (an import); stores use their clock otherwise."""


class Sealer:
    def __init__(self, limits: Limits | None = None, masker: Masker | None = None) -> None:
        self.limits = limits or Limits()
        self._masker = masker

    def message(self, new: NewMessage) -> Sealed:
        """InvalidInput (or a kind of it) where a message breaks a rule; the order of parts is kept."""
        check_choice("role", new.role, ROLES)
        raw, parts = self._parts(new.parts)
        if len(raw) > self.limits.message_bytes:
            raise LimitExceeded("message size in bytes", self.limits.message_bytes, len(raw))
        return Sealed(
            id=new_id() if new.id is None else check_id("message", new.id),
            role=new.role,
            parts_json=raw,
            metadata_json=None if not new.metadata else self.json(new.metadata, "metadata"),
            text=parts_.plain_text(parts),
            created_us=None if new.created_at is None else _moment(new.created_at),
        )

    def _parts(self, given: tuple[Part, ...] | bytes) -> tuple[bytes, Sequence[Part]]:
        parts: Sequence[Part]
        if isinstance(given, bytes):
            if len(given) > self.limits.message_bytes:
                raise LimitExceeded("message size in bytes", self.limits.message_bytes, len(given))
            jsontext.parse(given, "parts")
            raw, parts = given, parts_.decode(given)
        else:
            raw, parts = parts_.encode(given), given
            _check_spliced(raw, given)
        if not parts:
            raise InvalidInput("message must have at least one part, got none")
        if len(parts) > self.limits.message_parts:
            raise LimitExceeded("parts per message", self.limits.message_parts, len(parts))
        if self._masker is None or not self._masker.may_hold(raw):
            return raw, parts
        masked = _mask_parts(self._masker, raw)
        return masked, parts if masked is raw else parts_.decode(masked)

    def text(self, value: str, what: str = "text") -> CleanText:
        check_characters(what, value)
        size = len(value.encode())
        if size > self.limits.text_bytes:
            raise LimitExceeded(f"{what} size in bytes", self.limits.text_bytes, size)
        return CleanText(value if self._masker is None else self._masker.mask_text(value))

    def json(self, value: dict[str, Any], what: str = "metadata") -> CleanJson:
        raw = jsontext.dump(value, what)
        if self._masker is not None and self._masker.may_hold(raw):
            raw = jsontext.dump(self._masker.mask_json(value), what)
        if len(raw) > self.limits.metadata_bytes:
            raise LimitExceeded(f"{what} size in bytes", self.limits.metadata_bytes, len(raw))
        return CleanJson(raw)


def _moment(created_at: dt.datetime) -> int:
    if created_at.tzinfo is None:
        raise InvalidInput("`created_at` must have a time zone, got a time without one")
    return to_us(created_at)


def _mask_parts(masker: Masker, raw: bytes) -> bytes:
    """Each part on its own, so that one without a secret keeps its bytes whatever stands beside it."""
    given = parts_.split(raw)
    masked = [_mask_part(masker, part) for part in given]
    if all(new is old for new, old in zip(masked, given, strict=True)):
        return raw
    kept = [part for part in masked if part is not None]
    return b"[" + b",".join(kept or [_NOTHING_LEFT]) + b"]"


def _mask_part(masker: Masker, raw: bytes) -> bytes | None:
    """None for signed reasoning that holds a secret: its provider takes it byte for byte or not at all."""
    if not masker.may_hold(raw):
        return raw
    value = jsontext.parse(raw, "parts")
    masked = masker.mask_json(value)
    if masked is value:
        return raw
    return None if _is_signed(value) else jsontext.dump(masked, "parts")


def _is_signed(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "reasoning" and bool(part.get("providerMetadata"))


_NOTHING_LEFT = b'{"type":"text","text":"[masked:reasoning]"}'


def _check_spliced(raw: bytes, parts: Sequence[Part]) -> None:
    """Tools and unknown parts carry JSON of their own, which `encode` puts between the rest as it is."""
    if len(parts) == 1 and type(parts[0]) is TextPart:
        return
    for part in parts:
        if isinstance(part, ToolPart):
            _check_piece(part.input)
            _check_piece(part.output)
        elif isinstance(part, OtherPart):
            _check_piece(part.json)
    jsontext.check_depth(raw, "parts")


def _check_piece(piece: bytes | None) -> None:
    if piece is not None and not isinstance(piece, jsontext.Json):
        jsontext.parse(piece, "parts")

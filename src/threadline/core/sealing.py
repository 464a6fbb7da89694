"""Sealing: validates and masks everything before it is stored.

Stores accept only `Sealed` messages, `CleanText` and `CleanJson`, and only a `Sealer` creates them, so nothing can be
stored that was not checked against the limits and masked. Sealing encodes parts into the bytes that are stored; they
are never rewritten after that.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NewType, Protocol, TypeAlias

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
    """The limits of single values. LimitExceeded names the one that was exceeded."""

    message_bytes: int = 1_048_576
    message_parts: int = 1_000
    metadata_bytes: int = 65_536
    text_bytes: int = 1_048_576
    messages_per_append: int = 10_000
    messages_per_thread: int = 1_000_000
    value_bytes: int = 67_108_864


METADATA_LIMIT = "metadata size in bytes"
"""The name of the limit of a message's metadata, as LimitExceeded gives it."""
Cut: TypeAlias = Callable[[Sequence[Part], Limits], tuple[Part, ...]]


class TextStream(Protocol):
    def feed(self, text: str) -> str:
        """The text that can be shown now. Text that may still become a secret is held back."""
        ...

    def flush(self) -> str:
        """The rest, at the end of the text. The next chunk starts a new text."""
        ...


class Masker(Protocol):
    """Removes secrets. Pure; never raises; returns the same object if there is nothing to mask."""

    def mask_text(self, text: str) -> str: ...

    def mask_json(self, value: Any) -> Any:
        """Masks every string in plain JSON data, and values under keys such as `password`. The input is not changed."""
        ...

    def may_hold(self, raw: bytes) -> bool:
        """False only if `mask_json` would not change the value of this JSON. Cheap: most JSON has none."""
        ...

    def stream(self) -> TextStream:
        """For one text that arrives in chunks. The outputs together equal `mask_text` of the whole text."""
        ...


class Sealed(msgspec.Struct, frozen=True):
    """A message ready to be stored: validated, masked, encoded."""

    id: str
    role: Role
    parts_json: bytes
    metadata_json: bytes | None
    text: str
    """The plain text. That of the first user message becomes the title; search reads the stored parts."""
    created_us: int | None = None
    """The time of an imported message; stores use their clock if it is None."""


class Sealer:
    """`tenants` have a masker of their own."""

    def __init__(
        self, limits: Limits | None = None, masker: Masker | None = None, tenants: Mapping[str, Masker] | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.masker = masker
        self._of_tenants = {tenant_id: Sealer(limits, own) for tenant_id, own in (tenants or {}).items()}

    def for_tenant(self, tenant_id: str) -> Sealer:
        return self._of_tenants.get(tenant_id, self)

    def message(self, new: NewMessage) -> Sealed:
        """InvalidInput or a subclass if the message is not valid. The order of parts is kept."""
        check_choice("role", new.role, ROLES)
        raw, parts = self._parts(new.parts)
        if not parts and new.role != "assistant":
            raise InvalidInput(f"a {new.role} message must have at least one part, got none")
        if len(raw) > self.limits.message_bytes:
            raise LimitExceeded("message size in bytes", self.limits.message_bytes, len(raw))
        return Sealed(
            id=new_id() if new.id is None else check_id("message", new.id),
            role=new.role,
            parts_json=raw,
            metadata_json=None if not new.metadata else self.json(new.metadata, "metadata"),
            text=parts_.plain_text(parts),
            created_us=None if new.created_at is None else _to_us(new.created_at),
        )

    def cut_message(self, new: NewMessage, cut: Cut) -> Sealed:
        """A message that exceeds a limit, with as many of its parts as `cut` leaves. They are masked before they are
        cut: half a secret would not be recognised."""
        parts = parts_.decode(new.parts) if isinstance(new.parts, bytes) else new.parts
        raw = parts_.encode(parts[: self.limits.message_parts])
        if self.masker is not None and self.masker.may_hold(raw):
            raw = _mask_parts(self.masker, raw)
        kept = cut(parts_.decode(raw), self.limits)
        return self.message(msgspec.structs.replace(new, parts=kept))

    def _parts(self, given: tuple[Part, ...] | bytes) -> tuple[bytes, Sequence[Part]]:
        parts: Sequence[Part]
        if isinstance(given, bytes):
            if len(given) > self.limits.message_bytes:
                raise LimitExceeded("message size in bytes", self.limits.message_bytes, len(given))
            jsontext.parse(given, "parts")
            raw, parts = given, parts_.decode(given)
        else:
            raw, parts = parts_.encode(given), given
            _check_raw_json(raw, given)
        if len(parts) > self.limits.message_parts:
            raise LimitExceeded("parts per message", self.limits.message_parts, len(parts))
        if self.masker is None or not self.masker.may_hold(raw):
            return raw, parts
        masked = _mask_parts(self.masker, raw)
        return masked, parts if masked is raw else parts_.decode(masked)

    def text(self, value: str, what: str = "text") -> CleanText:
        check_characters(what, value)
        size = len(value.encode())
        if size > self.limits.text_bytes:
            raise LimitExceeded(f"{what} size in bytes", self.limits.text_bytes, size)
        return CleanText(value if self.masker is None else self.masker.mask_text(value))

    def json(self, value: dict[str, Any], what: str = "metadata") -> CleanJson:
        raw = jsontext.dump(value, what)
        if self.masker is not None and self.masker.may_hold(raw):
            raw = jsontext.dump(self.masker.mask_json(value), what)
        if len(raw) > self.limits.metadata_bytes:
            raise LimitExceeded(
                METADATA_LIMIT if what == "metadata" else f"{what} size in bytes", self.limits.metadata_bytes, len(raw)
            )
        return CleanJson(raw)


def _to_us(created_at: dt.datetime) -> int:
    if created_at.tzinfo is None:
        raise InvalidInput("`created_at` must have a time zone, got a time without one")
    return to_us(created_at)


def _mask_parts(masker: Masker, raw: bytes) -> bytes:
    """Masks each part separately, so that a part without a secret keeps its bytes."""
    given = parts_.split(raw)
    masked = [_mask_part(masker, part) for part in given]
    if all(new is old for new, old in zip(masked, given, strict=True)):
        return raw
    kept = [part for part in masked if part is not None]
    return b"[" + b",".join(kept or [_EMPTY_MESSAGE_PART]) + b"]"


def _mask_part(masker: Masker, raw: bytes) -> bytes | None:
    """None for signed reasoning with a secret: its provider would reject it changed, so the part is dropped."""
    if not masker.may_hold(raw):
        return raw
    value = jsontext.parse(raw, "parts")
    masked = masker.mask_json(value)
    if masked is value:
        return raw
    return None if _is_signed(value) else jsontext.dump(masked, "parts")


def _is_signed(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "reasoning" and bool(part.get("providerMetadata"))


_EMPTY_MESSAGE_PART = b'{"type":"text","text":"[masked:reasoning]"}'


def _check_raw_json(raw: bytes, parts: Sequence[Part]) -> None:
    """Checks the JSON of tools and unknown parts, which `encode` inserts unchanged."""
    if len(parts) == 1 and type(parts[0]) is TextPart:
        return
    for part in parts:
        if isinstance(part, ToolPart):
            _check_fragment(part.input)
            _check_fragment(part.output)
        elif isinstance(part, OtherPart):
            _check_fragment(part.json)
    jsontext.check_depth(raw, "parts")


def _check_fragment(fragment: bytes | None) -> None:
    if fragment is not None and not isinstance(fragment, jsontext.Json):
        jsontext.parse(fragment, "parts")

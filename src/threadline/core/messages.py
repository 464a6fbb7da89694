"""Messages: NewMessage, to append, and Message, as stored.

A message is written once and never changed. `parts_json` and `metadata_json` are the stored bytes; `parts`, `text` and
`metadata` decode them on demand, so that reading a long history costs only what is used.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from threadline.core import jsontext
from threadline.core import parts as parts_
from threadline.core.checks import check_choice
from threadline.core.parts import Part, TextPart

Role: TypeAlias = Literal["user", "assistant", "system"]
ROLES: tuple[Role, ...] = ("user", "assistant", "system")


_INCOMPLETE = {"interrupted": "interrupted", "stopped": "stopped", "dispatch_failed": "failed"}
"""By the status of the turn, which is stored with its reply unless the turn was executed."""


class NewMessage(msgspec.Struct, frozen=True):
    """A message to append. Without an id it gets a new one; a message with an id is stored only once."""

    role: Role
    parts: tuple[Part, ...] | bytes
    id: str | None = None
    metadata: dict[str, Any] | None = None
    created_at: dt.datetime | None = None

    @property
    def text(self) -> str:
        found = parts_.decode(self.parts) if isinstance(self.parts, bytes) else self.parts
        return parts_.plain_text(found)


def new_message(
    role: Role, content: str | Sequence[Part], *, id: str | None = None, metadata: dict[str, Any] | None = None
) -> NewMessage:
    check_choice("role", role, ROLES)
    given = (TextPart(content),) if isinstance(content, str) else tuple(content)
    return NewMessage(role=role, parts=given, id=id, metadata=metadata)


def user(content: str | Sequence[Part], *, id: str | None = None) -> NewMessage:
    return new_message("user", content, id=id)


def assistant(content: str | Sequence[Part], *, id: str | None = None) -> NewMessage:
    return new_message("assistant", content, id=id)


class Message(msgspec.Struct, frozen=True):
    """A stored message. `timeline_id` and `seq` together identify its point."""

    id: str
    role: Role
    timeline_id: str
    seq: int
    parts_json: bytes
    metadata_json: bytes | None
    turn_id: str | None
    created_us: int
    hidden: tuple[int, ...] = ()
    """The numbers of the stored parts that `parts` leaves out: see `threadline.core.hidden_parts`."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return parts_.decode(self.parts_json)

    @property
    def text(self) -> str:
        return parts_.plain_text(self.parts)

    @property
    def metadata(self) -> dict[str, Any]:
        if self.metadata_json is None:
            return {}
        found = jsontext.parse(self.metadata_json, "metadata")
        assert isinstance(found, dict)
        return found

    @property
    def incomplete(self) -> str | None:
        """Why a reply is not complete: `interrupted` (its process ended), `stopped` or `failed`. None if it is."""
        if self.role != "assistant" or self.metadata_json is None:
            return None
        return _INCOMPLETE.get(str(self.metadata.get("status")))

    @property
    def created_at(self) -> dt.datetime:
        return from_us(self.created_us)

    def to_dict(self) -> dict[str, Any]:
        """The message as plain JSON data; `parts` have the AI SDK's key names."""
        return {
            "id": self.id,
            "role": self.role,
            "timeline_id": self.timeline_id,
            "seq": self.seq,
            "turn_id": self.turn_id,
            "created_at": self.created_at.isoformat(),
            "parts": jsontext.parse(self.parts_json, "parts"),
            "metadata": self.metadata,
        }


def to_us(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_us(microseconds: int) -> dt.datetime:
    if 0 <= microseconds < _EXACT_AS_SECONDS:
        # Takes less than half the time of the addition below; a list of threads converts hundreds of times.
        return dt.datetime.fromtimestamp(microseconds / 1_000_000, dt.UTC)
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def all_from_us(microseconds: list[int]) -> list[dt.datetime]:
    """`from_us` for a list, in a fifth of the time."""
    if microseconds and min(microseconds) >= 0 and max(microseconds) < _EXACT_AS_SECONDS:
        return msgspec.convert([each / 1_000_000 for each in microseconds], list[dt.datetime], strict=False)
    return [from_us(each) for each in microseconds]


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_EXACT_AS_SECONDS = 2**32 * 1_000_000
"""Until the year 2106 a double can distinguish any two microseconds."""


def to_ui(message: Message) -> bytes:
    """The AI SDK's UIMessage of a stored message, built around the stored bytes without decoding them."""
    metadata = b"" if message.metadata_json is None else b',"metadata":' + message.metadata_json
    # Ids and roles were validated when they were stored; validating them again would double the time of a long history.
    head = b'{"id":' + _encode(message.id) + b',"role":"' + message.role.encode() + b'"'
    return head + metadata + b',"parts":' + message.parts_json + b"}"


_encode = msgspec.json.Encoder().encode

"""Values that the client derives from response bodies. The bodies themselves are in `threadline.api_types`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from threadline.api_types import ThreadHistory
from threadline.core import parts as parts_
from threadline.core.errors import ServiceUnavailable
from threadline.core.messages import Role
from threadline.core.parts import Part

T = TypeVar("T")


class UiMessage(msgspec.Struct, frozen=True):
    """A stored message. `parts` and `text` decode `parts_json`."""

    id: str
    role: Role
    seq: int
    parts_json: bytes
    metadata: dict[str, Any]

    @property
    def parts(self) -> tuple[Part, ...]:
        return parts_.decode(self.parts_json)

    @property
    def text(self) -> str:
        return parts_.plain_text(self.parts)


def messages_of(history: ThreadHistory) -> list[UiMessage]:
    return [
        UiMessage(each.id, each.role, history.first_seq + number, bytes(each.parts), each.metadata)
        for number, each in enumerate(history.messages)
    ]


class Known(msgspec.Struct, frozen=True):
    """The only key that tells a thread from a state key without one."""

    id: str | None = None


def read(body: bytes, shape: type[T]) -> T:
    """ServiceUnavailable for a body of another shape: not a Threadline service, or an incompatible version."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ServiceUnavailable(f"the service answered something unexpected: {exc}") from exc

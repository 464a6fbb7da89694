"""What the service answers, as values. Where the library has the same value, it is the library's."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeVar

import msgspec

from threadline.core import parts as parts_
from threadline.core.channels import LinkState
from threadline.core.errors import ServiceUnavailable
from threadline.core.messages import Role
from threadline.core.parts import Part
from threadline.core.threads import Point, SavedPoint, Timeline
from threadline.core.turns import Surface, TurnStatus

T = TypeVar("T")


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    """Keys that a newer service adds are passed over."""


class ThreadInfo(_Camel, frozen=True):
    """A thread as the service shows it."""

    id: str
    state_key: str
    timeline_id: str
    message_count: int
    token_count: int
    created_at: dt.datetime
    updated_at: dt.datetime
    title: str | None = None
    agent_id: str | None = None
    model: str | None = None
    metadata: dict[str, Any] = {}
    archived_at: dt.datetime | None = None


class UiMessage(msgspec.Struct, frozen=True):
    """A stored message. `parts_json` is as it stands there; `parts` and `text` read it."""

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


class _Message(msgspec.Struct, frozen=True):
    id: str
    role: Role
    parts: msgspec.Raw
    metadata: dict[str, Any] = {}


class History(ThreadInfo, frozen=True, kw_only=True):
    """A thread and some of its messages, the first of which has seq `first_seq`."""

    first_seq: int
    active: bool = False
    messages: list[_Message] = []

    def shown(self) -> list[UiMessage]:
        return [
            UiMessage(each.id, each.role, self.first_seq + number, bytes(each.parts), each.metadata)
            for number, each in enumerate(self.messages)
        ]


class Known(msgspec.Struct, frozen=True):
    """Whether there is a thread at all."""

    id: str | None = None


class ThreadsPage(_Camel, frozen=True):
    threads: list[ThreadInfo]
    next_cursor: str | None = None


class TurnInfo(_Camel, frozen=True):
    """A turn as it stands: from where it came, how it ended, what it cost."""

    id: str
    status: TurnStatus
    surface: Surface
    created_at: dt.datetime
    agent_id: str | None = None
    error: str | None = None
    usage: dict[str, Any] | None = None
    request_seq: int | None = None
    reply_seq: int | None = None
    finished_at: dt.datetime | None = None


class Turns(_Camel, frozen=True):
    turns: list[TurnInfo]


class _Parent(_Camel, frozen=True):
    timeline_id: str
    seq: int


class TimelineShown(_Camel, frozen=True):
    id: str
    message_count: int
    created_at: dt.datetime
    parent: _Parent | None = None

    def timeline(self, thread_id: str) -> Timeline:
        parent = None if self.parent is None else Point(self.parent.timeline_id, self.parent.seq)
        return Timeline(self.id, thread_id, parent, self.message_count, self.created_at)


class Timelines(_Camel, frozen=True):
    timelines: list[TimelineShown]


class SavedShown(_Camel, frozen=True):
    name: str
    thread_id: str
    timeline_id: str
    seq: int
    created_at: dt.datetime

    def saved_point(self) -> SavedPoint:
        return SavedPoint(self.name, Point(self.timeline_id, self.seq), self.thread_id, self.created_at)


class Saves(_Camel, frozen=True):
    saves: list[SavedShown]


class FoundMessage(_Camel, frozen=True):
    """A message that a search found."""

    state_key: str
    message_id: str
    seq: int
    role: Role
    snippet: str
    created_at: dt.datetime
    title: str | None = None


class Hits(_Camel, frozen=True):
    hits: list[FoundMessage]


class PinnedContext(_Camel, frozen=True):
    """What the user pinned for an agent."""

    agent_id: str
    context: str
    created_at: dt.datetime
    updated_at: dt.datetime


class AgentInfo(_Camel, frozen=True):
    id: str
    name: str
    provider: str
    enabled: bool
    settings: dict[str, Any] = {}
    model: str | None = None
    system_prompt: str | None = None


class Agents(_Camel, frozen=True):
    """The tenant's own, and the ids of those that every tenant has."""

    agents: list[AgentInfo]
    shared: list[str]


class LinkInfo(_Camel, frozen=True):
    """An account on a platform, and whose it is here. A revoked one is barred."""

    platform: Surface
    platform_user_id: str
    user_id: str
    state: LinkState
    created_at: dt.datetime
    updated_at: dt.datetime


class Links(_Camel, frozen=True):
    links: list[LinkInfo]


class Redeemed(_Camel, frozen=True):
    user_id: str


class Imported(_Camel, frozen=True):
    threads: list[ThreadInfo]


class Stopped(_Camel, frozen=True):
    stopped: int


def read(body: bytes, shape: type[T]) -> T:
    """ServiceUnavailable if the service answered something else: then it is none, or of another age."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ServiceUnavailable(f"the service answered something unexpected: {exc}") from exc

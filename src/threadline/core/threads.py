"""Scopes, threads, timelines, points, saved points and lineages.

Seq counts from 0 and continues across a fork, so a thread's message count is also the seq of its next message. A
history is a chain of ranges: the timeline's own messages, before them its parent's up to the fork, and so on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec

from threadline.core.errors import RoleRefused
from threadline.core.ids import check_tenant_id, check_user_id
from threadline.core.plain_values import PlainValue

UserRole: TypeAlias = Literal["viewer", "member", "admin", "system"]
_RANK: dict[UserRole, int] = {"viewer": 0, "member": 1, "admin": 2, "system": 3}
T = TypeVar("T")


class Scope(msgspec.Struct, frozen=True):
    """The caller of every data access. The role `system` is Threadline itself in one tenant: sweeps and deliveries."""

    tenant_id: str = "local"
    user_id: str = "local"
    role: UserRole = "member"

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant_id)
        check_user_id(self.user_id)

    def require(self, needed: UserRole) -> None:
        if _RANK[self.role] < _RANK[needed]:
            raise RoleRefused(self.role, needed)


SYSTEM_USER = "system"
"""The user id of Threadline itself. No person has it: tokens, JWTs and impersonation refuse it."""


def system_scope(tenant_id: str) -> Scope:
    return Scope(tenant_id=tenant_id, user_id=SYSTEM_USER, role="system")


class Point(NamedTuple):
    """A position in the log: everything up to and including `seq` on `timeline_id`. Seq -1 is before the first."""

    timeline_id: str
    seq: int


class Thread(PlainValue, frozen=True):
    id: str
    owner_id: str
    state_key: str
    timeline_id: str
    title: str | None
    title_by_person: bool
    agent_id: str | None
    model: str | None
    system_prompt: str | None
    working_dir: str | None
    metadata: dict[str, Any]
    message_count: int
    token_count: int
    created_at: dt.datetime
    updated_at: dt.datetime
    archived_at: dt.datetime | None
    deleted_at: dt.datetime | None

    @property
    def head(self) -> Point:
        return Point(self.timeline_id, self.message_count - 1)


class NewThread(msgspec.Struct, frozen=True):
    """A thread to create. Id and state key are generated if they are omitted; other fields stay empty."""

    id: str | None = None
    state_key: str | None = None
    title: str | None = None
    title_by_person: bool = False
    agent_id: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    working_dir: str | None = None
    metadata: dict[str, Any] = {}


class NamedThreadFields(TypedDict, total=False):
    """Keyword arguments for a new thread whose state key is passed separately (see `NewThread`)."""

    id: str | None
    title: str | None
    agent_id: str | None
    model: str | None
    system_prompt: str | None
    working_dir: str | None
    metadata: dict[str, Any]


class ThreadFields(NamedThreadFields, total=False):
    """Keyword arguments for a new thread (see `NewThread`)."""

    state_key: str | None


class ThreadUpdate(TypedDict, total=False):
    """Keyword arguments for an update. None clears a field; an omitted field is unchanged."""

    title: str | None
    agent_id: str | None
    model: str | None
    system_prompt: str | None
    working_dir: str | None
    metadata: dict[str, Any]
    archived: bool


class ExpectedHead(TypedDict, total=False):
    """Keyword arguments of a move: where the caller saw the thread's end."""

    expected_count: int | None
    expected_timeline: str | None


class ThreadChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes to a thread; an UNSET field is unchanged. A title set here counts as chosen by a person and is kept."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    title_by_person: bool | msgspec.UnsetType = msgspec.UNSET
    agent_id: str | msgspec.UnsetType | None = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    system_prompt: str | msgspec.UnsetType | None = msgspec.UNSET
    working_dir: str | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET


class Timeline(PlainValue, frozen=True):
    """An append-only sequence of messages. `message_count` counts its whole history, including its ancestors'."""

    id: str
    thread_id: str
    parent: Point | None
    message_count: int
    created_at: dt.datetime


class SavedPoint(PlainValue, frozen=True):
    name: str
    point: Point
    thread_id: str
    created_at: dt.datetime


class ThreadState(msgspec.Struct, frozen=True):
    """The fields of a thread that an append changes, as they are after the call."""

    timeline_id: str
    message_count: int
    token_count: int
    title: str | None
    updated_at: dt.datetime

    def apply_to(self, thread: Thread) -> Thread:
        return msgspec.structs.replace(thread, **msgspec.structs.asdict(self))


class Appended(PlainValue, frozen=True):
    """The result of an append. `replayed` means that it was a repetition and that nothing was written now.

    `message_count` counts up to the last of these messages. `thread` is the thread's state after the call, which for a
    replayed append includes what was appended since. `value_versions` are those of the values that were stored with it;
    empty if it is replayed."""

    thread_id: str
    timeline_id: str
    first_seq: int
    message_ids: tuple[str, ...]
    message_count: int
    thread: ThreadState
    replayed: bool = False
    value_versions: tuple[int, ...] = ()


class Page(PlainValue, Generic[T], frozen=True):
    """Iterate over it for its items; `next_cursor` gets the page after it."""

    items: tuple[T, ...]
    next_cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __bool__(self) -> bool:
        # An empty page is still a page.
        return True


class Hit(PlainValue, frozen=True):
    """A message found by a search, in a thread whose current history contains it."""

    thread_id: str
    state_key: str
    title: str | None
    message_id: str
    seq: int
    role: str
    snippet: str
    created_at: dt.datetime


class ThreadHits(PlainValue, frozen=True):
    """A thread found by a search. `hits` are its best passages, of `hit_count`; none if only its title was found."""

    thread_id: str
    state_key: str
    title: str | None
    updated_at: dt.datetime
    is_title_match: bool
    hit_count: int
    hits: tuple[Hit, ...]


class Segment(NamedTuple):
    """One range of a history: seqs `first` to `last`, both inclusive, on one timeline."""

    timeline_id: str
    first: int
    last: int


Lineage: TypeAlias = Sequence[Point]
"""A timeline's ancestors, nearest first, each with the last seq inherited from it. No range is empty."""


def segments(timeline_id: str, lineage: Lineage, first: int, last: int) -> tuple[Segment, ...]:
    """The ranges that contain seqs `first` to `last` of a history, oldest first."""
    found: list[Segment] = []
    upper = last
    for owner, top, below in _ranges(timeline_id, lineage, last):
        low, high = max(below + 1, first), min(top, upper)
        if low <= high:
            found.append(Segment(owner, low, high))
        if below < first:
            break
    return tuple(reversed(found))


def _ranges(timeline_id: str, lineage: Lineage, last: int) -> list[tuple[str, int, int]]:
    owners = [(timeline_id, last), *lineage]
    return [
        (owner, top, owners[index + 1][1] if index + 1 < len(owners) else -1)
        for index, (owner, top) in enumerate(owners)
    ]

"""Rows to values, for both stores. Columns are found by name, so their order in a query does not matter.

A column has the name of its field; a time `created_at` may also be a column `created_us`, in microseconds since 1970.
JSON is stored as bytes, an empty object as NULL. Messages are not read here: histories have thousands of rows, and each
store unpacks theirs by position, which takes half the time.

Page cursors: an opaque position in a list.

A cursor contains a checksum over the list it was issued for (its owner and filters), so an invented, truncated or
foreign cursor is rejected instead of returning a page of something else. It is not a secret and grants nothing: the
page is still limited to the caller's scope.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from threadline.core import jsontext
from threadline.core.access import ApiToken, AuditEntry
from threadline.core.channels import (
    Agent,
    Binding,
    ContextSnapshot,
    InboxRow,
    Link,
    OutboxBacklog,
    OutboxRow,
    SealedCredentials,
    User,
)
from threadline.core.errors import InvalidCursor
from threadline.core.messages import all_from_us, from_us, to_us
from threadline.core.retention import LegalHold, OverdueThread
from threadline.core.sealing import Sealed
from threadline.core.sign_ins import SignIn
from threadline.core.threads import Point, SavedPoint, Thread, Timeline
from threadline.core.turns import Summary, ToolRun, Turn
from threadline.core.usage import UsageRow, as_currency, day_of

T = TypeVar("T")


class NamedRow(Protocol):
    """A row that knows its columns, such as asyncpg's Record."""

    def keys(self) -> Any: ...

    def __getitem__(self, position: int, /) -> Any: ...


class RowReader(Generic[T]):
    """Makes values of one kind from rows. `times`, `objects` and `flags` name the fields that need a conversion."""

    def __init__(
        self,
        make: Callable[..., T],
        fields: Sequence[str],
        *,
        times: Sequence[str] = (),
        objects: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        self._make = make
        self._fields = tuple(fields)
        conversions: dict[str, Callable[[Any], Any]] = dict.fromkeys(times, _time)
        conversions |= dict.fromkeys(objects, _object) | dict.fromkeys(flags, bool)
        self._conversions = [(self._fields.index(field), convert) for field, convert in conversions.items()]
        self._selectors: dict[tuple[str, ...], Callable[[Any], tuple[Any, ...]]] = {}

    def __call__(self, row: NamedRow) -> T:
        return self.read(tuple(row.keys()), row)

    def read(self, columns: tuple[str, ...], row: Any) -> T:
        """The value of a row whose columns have these names. KeyError if a field has no column."""
        return self.from_fields(*self.select(columns)(row))

    def from_fields(self, *stored: Any) -> T:
        """The value of stored values in the order of its fields."""
        values = list(stored)
        for position, convert in self._conversions:
            values[position] = convert(values[position])
        return self._make(*values)

    def select(self, columns: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
        """Takes the fields out of a row, in order. Cached, because a query returns the same columns every time."""
        selector = self._selectors.get(columns)
        if selector is None:
            positions = {_field_name(column): position for position, column in enumerate(columns)}
            selector = self._selectors[columns] = itemgetter(*(positions[field] for field in self._fields))
        return selector


def _field_name(column: str) -> str:
    """`created_us` is `created_at`, and `lease_until_us` is `lease_until`."""
    if not column.endswith("_us"):
        return column
    name = column.removesuffix("_us")
    return name if name.endswith("_until") else f"{name}_at"


def _time(stored: int | dt.datetime | None) -> dt.datetime | None:
    return stored if stored is None or isinstance(stored, dt.datetime) else from_us(stored)


def _object(stored: bytes | None) -> Any:
    return json.loads(stored) if stored else {}


def microseconds(moment: dt.datetime | None) -> int | None:
    return None if moment is None else to_us(moment)


def json_bytes(value: dict[str, Any], what: str) -> bytes | None:
    """What the functions below read back as this object."""
    return jsontext.dump(value, what) if value else None


def fingerprint(messages: Sequence[Sealed]) -> bytes:
    # Without ids: a repeated call may have sealed its messages again, which generates new ids.
    hashed = hashlib.blake2b(digest_size=16)
    for message in messages:
        hashed.update(f"{message.role} {len(message.parts_json)} ".encode())
        hashed.update(message.parts_json)
    return hashed.digest()


thread = RowReader(
    Thread,
    Thread.__struct_fields__,
    times=("created_at", "updated_at", "archived_at", "deleted_at"),
    objects=("metadata",),
    flags=("title_by_person",),
)


def threads(columns: tuple[str, ...], found: Sequence[Any]) -> tuple[Thread, ...]:
    """Many threads at a time. Written out, because lists of threads are read by the hundred and this takes half the
    time. Created and updated come as microseconds."""
    selected = [*map(thread.select(columns), found)]
    made = all_from_us([row[13] for row in selected])
    touched = all_from_us([row[14] for row in selected])
    return tuple([
        Thread(
            id, owner, key, timeline, title, bool(by_person), agent, model, prompt, folder,
            json.loads(metadata) if metadata else {}, count, tokens, created, updated,
            None if archived is None else _time(archived), None if deleted is None else _time(deleted),
        )
        for (
            id, owner, key, timeline, title, by_person, agent, model, prompt, folder,
            metadata, count, tokens, _, _, archived, deleted,
        ), created, updated in zip(selected, made, touched, strict=True)
    ])  # fmt: skip


def _timeline(
    id: str, thread_id: str, parent_id: str | None, parent_seq: int, message_count: int, created_at: dt.datetime
) -> Timeline:
    return Timeline(
        id, thread_id, None if parent_id is None else Point(parent_id, parent_seq), message_count, created_at
    )


timeline = RowReader(
    _timeline,
    ("id", "thread_id", "parent_id", "parent_seq", "message_count", "created_at"),
    times=("created_at",),
)
saved_point = RowReader(
    lambda name, timeline_id, seq, thread_id, created_at: SavedPoint(
        name, Point(timeline_id, seq), thread_id, created_at
    ),
    ("name", "timeline_id", "seq", "thread_id", "created_at"),
    times=("created_at",),
)
summary = RowReader(
    lambda timeline_id, seq, text, created_at, source, model: Summary(
        Point(timeline_id, seq), text, created_at, source, model
    ),
    ("timeline_id", "seq", "text", "created_at", "source", "model"),
    times=("created_at",),
)
binding = RowReader(Binding, Binding.__struct_fields__, times=("created_at", "updated_at"), objects=("metadata",))
context_snapshot = RowReader(ContextSnapshot, ContextSnapshot.__struct_fields__, times=("created_at", "updated_at"))
agent = RowReader(Agent, Agent.__struct_fields__, objects=("settings",), flags=("enabled",))
user = RowReader(User, User.__struct_fields__, times=("disabled_at",))
link = RowReader(Link, Link.__struct_fields__, times=("created_at", "updated_at"))
api_token = RowReader(
    ApiToken,
    ApiToken.__struct_fields__,
    times=("created_at", "expires_at", "last_used_at", "revoked_at"),
    flags=("acts_for_users",),
)
sign_in = RowReader(
    SignIn,
    SignIn.__struct_fields__,
    times=("created_at", "expires_at", "opened_at", "last_seen_at", "revoked_at"),
)
hold = RowReader(LegalHold, LegalHold.__struct_fields__, times=("created_at",))
overdue_thread = RowReader(OverdueThread, OverdueThread.__struct_fields__)
act = RowReader(AuditEntry, AuditEntry.__struct_fields__, times=("created_at",), objects=("details",))
inbox_row = RowReader(InboxRow, InboxRow.__struct_fields__, times=("created_at", "updated_at"))
credentials = RowReader(SealedCredentials, SealedCredentials.__struct_fields__, times=("updated_at",))
outbox_row = RowReader(
    OutboxRow,
    OutboxRow.__struct_fields__,
    times=("next_attempt_at", "claimed_until", "created_at", "sent_at", "requeued_at"),
)
outbox_backlog = RowReader(OutboxBacklog, OutboxBacklog.__struct_fields__, times=("oldest_at",))
turn = RowReader(
    Turn,
    Turn.__struct_fields__,
    times=("lease_until", "created_at", "finished_at"),
    objects=("usage", "seen"),
)


def _usage_row(day: int | None, *rest: Any) -> UsageRow:
    *fields, cost_nanos = rest
    user_id, agent_id, provider, model, kind, *counts = fields
    turns, input_tokens, output_tokens, cached_tokens, reasoning_tokens = counts
    return UsageRow(
        day=None if day is None else day_of(day),
        user_id=user_id,
        agent_id=agent_id,
        # What is not known is stored as ''.
        provider=provider or None,
        model=model or None,
        kind=kind,
        turns=turns,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        reasoning_tokens=reasoning_tokens,
        cost=None if cost_nanos is None else as_currency(cost_nanos),
    )


usage = RowReader(_usage_row, (*UsageRow.__struct_fields__[:-1], "cost_nanos"))
tool_run = RowReader(
    ToolRun,
    ("turn_id", "call_id", "name", "input", "repeatable", "output", "finished_at"),
    times=("finished_at",),
    flags=("repeatable",),
)


_CHECKSUM_BYTES = 9
# Safe in a URL like the usual pair, but without a dash: a command line would take a cursor with a leading dash for an
# option.
_ALTCHARS = b"._"


class Position(NamedTuple):
    """The last row of a page: what the listing is ordered by, and the id that breaks ties."""

    at_us: int
    id: str


def encode_cursor(listing: str, position: Position) -> str:
    return _encode(listing, f"{position.at_us}.{position.id}".encode())


def decode_cursor(listing: str, cursor: str) -> Position:
    """InvalidCursor unless `encode_cursor` made it for the same listing."""
    try:
        body = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=_ALTCHARS, validate=True)[_CHECKSUM_BYTES:]
        at_us, _, id = body.decode().partition(".")
        position = Position(int(at_us), id)
    except (binascii.Error, UnicodeError, ValueError):
        raise InvalidCursor("cursor was not issued here: start again without one") from None
    # Compared as text, because base64 has several encodings of the same bytes.
    if _encode(listing, body) != cursor:
        raise InvalidCursor("cursor was not issued for this list: start again without one")
    return position


def _encode(listing: str, body: bytes) -> str:
    checksum = hashlib.blake2b(b"%b\0%b" % (listing.encode(), body), digest_size=_CHECKSUM_BYTES).digest()
    return base64.b64encode(checksum + body, _ALTCHARS).decode().rstrip("=")

"""Rows to values: each function takes the columns of its value, in the order of the value's own fields.

Both stores use them. JSON is stored as bytes, nothing for an empty object. A time may come as microseconds since 1970
or as what the driver made of it. Messages need nothing here: their columns are their fields; only what an append under
a key was asked to write has one form for both stores.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from threadline.core import jsontext
from threadline.core.access import ApiToken, AuditEntry
from threadline.core.channels import (
    Agent,
    Binding,
    ContextSnapshot,
    InboxRow,
    Link,
    OutboxRow,
    SealedCredentials,
    User,
)
from threadline.core.messages import all_from_us, from_us, to_us
from threadline.core.sealing import Sealed
from threadline.core.threads import Point, SavedPoint, Thread, Timeline
from threadline.core.turns import Summary, ToolRun, Turn

Row: TypeAlias = Iterable[Any]


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


def thread(row: Row) -> Thread:
    values = _read(row, times=(13, 14, 15, 16), objects=(10,), flags=(5,))
    return Thread(*values)


def threads(found: Sequence[Any]) -> tuple[Thread, ...]:
    """Written out, because lists of threads are read by the hundred. Both their times come as microseconds."""
    made = all_from_us([row[13] for row in found])
    touched = all_from_us([row[14] for row in found])
    return tuple([
        Thread(
            id, owner, key, timeline, title, bool(by_person), agent, model, prompt, folder,
            json.loads(metadata) if metadata else {}, count, tokens, created, updated,
            None if archived is None else _moment(archived), None if deleted is None else _moment(deleted),
        )
        for (
            id, owner, key, timeline, title, by_person, agent, model, prompt, folder,
            metadata, count, tokens, _, _, archived, deleted,
        ), created, updated in zip(found, made, touched, strict=True)
    ])  # fmt: skip


def timeline(row: Row) -> Timeline:
    id, thread_id, parent_id, parent_seq, message_count, created = row
    parent = None if parent_id is None else Point(parent_id, parent_seq)
    return Timeline(id, thread_id, parent, message_count, _moment(created))


def saved_point(row: Row) -> SavedPoint:
    name, timeline_id, seq, thread_id, created = row
    return SavedPoint(name, Point(timeline_id, seq), thread_id, _moment(created))


def summary(row: Row) -> Summary:
    timeline_id, seq, text, created = row
    return Summary(Point(timeline_id, seq), text, _moment(created))


def binding(row: Row) -> Binding:
    return Binding(*_read(row, times=(6, 7), objects=(5,)))


def context_snapshot(row: Row) -> ContextSnapshot:
    return ContextSnapshot(*_read(row, times=(3, 4)))


def agent(row: Row) -> Agent:
    return Agent(*_read(row, objects=(4,), flags=(6,)))


def user(row: Row) -> User:
    return User(*row)


def link(row: Row) -> Link:
    return Link(*_read(row, times=(4, 5)))


def api_token(row: Row) -> ApiToken:
    return ApiToken(*_read(row, times=(4, 5, 6, 7), flags=(8,)))


def act(row: Row) -> AuditEntry:
    return AuditEntry(*_read(row, times=(5,), objects=(4,)))


def inbox_row(row: Row) -> InboxRow:
    return InboxRow(*_read(row, times=(9, 10)))


def credentials(row: Row) -> SealedCredentials:
    return SealedCredentials(*_read(row, times=(3,)))


def outbox_row(row: Row) -> OutboxRow:
    return OutboxRow(*_read(row, times=(8, 10, 12, 13)))


def turn(row: Row) -> Turn:
    return Turn(*_read(row, times=(14, 16, 17), objects=(11, 12)))


def tool_run(row: Row) -> ToolRun:
    return ToolRun(*_read(row, times=(6,), flags=(4,)))


def _read(row: Row, *, times: Row = (), objects: Row = (), flags: Row = ()) -> list[Any]:
    values = list(row)
    for at in times:
        values[at] = _known(values[at])
    for at in objects:
        values[at] = json.loads(values[at]) if values[at] else {}
    for at in flags:
        values[at] = bool(values[at])
    return values


def _known(stored: int | dt.datetime | None) -> dt.datetime | None:
    return None if stored is None else _moment(stored)


def _moment(stored: int | dt.datetime) -> dt.datetime:
    return stored if isinstance(stored, dt.datetime) else from_us(stored)

"""Histories that come from elsewhere: the records of one thread, in the order in which an import stores them.

A source (an export of Threadline or of another program) is one `ThreadRecord` and then its items:

    PastTurn*, (TimelineRecord, (MessageRecord | HiddenRecord)*)*, SavedPointRecord*, SummaryRecord*

A message belongs to the timeline record before it; a source without branches needs no timeline record. A timeline
begins at a point of an earlier one. `seq` counts from 0 and continues through a fork, as everywhere.

Every import is untrusted. `check_message` and `check_thread` enforce what
docs/decisions/2026-11-16-imports-are-untrusted.md decides.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core import parts as parts_
from threadline.core.errors import InvalidInput, quote
from threadline.core.messages import NewMessage
from threadline.core.parts import OtherPart, Part, ToolPart
from threadline.core.threads import Thread
from threadline.core.turns import SummarySource, Surface, TurnStatus

IMPORTED_PROMPT = "importedSystemPrompt"
"""The key of a thread's metadata under which an import puts the system prompt of the source."""
MAIN = "main"
"""The key of the timeline of messages that come before any timeline record."""
_NOT_APPROVED = "not run: its approval was still open when this thread was exported"
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A thread as its source describes it. Without times it gets those of its messages. `timeline` is the key of the
    present timeline (default: the last one that has a message)."""

    id: str | None = None
    """Kept if it is free. A source with ids of its own gives an origin instead, see `HistoryImporter.store`."""
    state_key: str | None = None
    title: str | None = None
    title_by_person: bool = False
    is_title_suggested: bool = True
    """Whether a thread without a title is called after its first question."""
    agent_id: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    working_dir: str | None = None
    metadata: dict[str, Any] = {}
    timeline: str | None = None
    token_count: int = 0
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    archived_at: dt.datetime | None = None
    deleted_at: dt.datetime | None = None


class PastTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has ended. Turns come before the messages that name them, oldest first."""

    id: str
    surface: Surface
    status: TurnStatus
    created_at: dt.datetime
    finished_at: dt.datetime | None = None
    agent_id: str | None = None
    provider: str | None = None
    model: str | None = None
    error: str | None = None
    usage: dict[str, Any] = {}
    request_seq: int | None = None
    reply_seq: int | None = None


class RecordPoint(NamedTuple):
    """A seq of the history of a timeline, which is named by its key in the source. -1 is before the first message."""

    timeline: str
    seq: int


class TimelineRecord(msgspec.Struct, frozen=True):
    """Begins a timeline that continues after `parent`; None: from the beginning. A key is unique in its thread."""

    key: str
    parent: RecordPoint | None = None
    created_at: dt.datetime | None = None


class MessageRecord(msgspec.Struct, frozen=True):
    """The next message of the timeline. Its id must be the same in every import of the source: a message is known by
    it, and is stored once."""

    message: NewMessage
    turn_id: str | None = None


class HiddenRecord(msgspec.Struct, frozen=True):
    """So many messages in a row that were deleted: they keep their seqs, and nothing else of them is left."""

    count: int


class SavedPointRecord(msgspec.Struct, frozen=True):
    name: str
    point: RecordPoint
    created_at: dt.datetime | None = None


class SummaryRecord(msgspec.Struct, frozen=True):
    point: RecordPoint
    text: str
    created_at: dt.datetime
    source: SummarySource = "extract"
    model: str | None = None


HistoryItem: TypeAlias = PastTurn | TimelineRecord | MessageRecord | HiddenRecord | SavedPointRecord | SummaryRecord


class History(NamedTuple):
    """One thread of a source. `items` is iterated more than once, each time from the start."""

    thread: ThreadRecord
    items: Iterable[HistoryItem]
    origin: str | None = None


class ThreadDates(NamedTuple):
    """What `date_thread` writes."""

    updated_at: dt.datetime
    archived_at: dt.datetime | None
    deleted_at: dt.datetime | None
    token_count: int


ImportOutcome: TypeAlias = Literal["created", "extended", "unchanged", "deleted"]
"""`deleted`: the thread is known and was deleted here. Nothing was stored, and it stays deleted."""


class ImportedThread(NamedTuple):
    """`messages` is the number of those that were new."""

    thread: Thread
    outcome: ImportOutcome
    messages: int


def id_of_origin(owner_id: str, origin: str) -> str:
    """The id of the thread that this user's import of `origin` makes: always the same, and no other user's."""
    digest = int.from_bytes(hashlib.sha256(f"{owner_id}\n{origin}".encode()).digest()[:17], "big")
    return "".join(_CROCKFORD[digest >> shift & 31] for shift in range(125, -1, -5))


def check_message(message: NewMessage, *, keep_system: bool = False) -> NewMessage:
    """The message with open approvals closed. InvalidInput for role `system` (unless `keep_system`) and for a part of a
    type that this version does not know."""
    if message.role == "system" and not keep_system:
        raise InvalidInput("`role` must be user or assistant, got 'system': only --keep-system imports it")
    decoded = parts_.decode(message.parts) if isinstance(message.parts, bytes) else message.parts
    if unknown := next((part for part in decoded if isinstance(part, OtherPart)), None):
        raise InvalidInput(f"part type must be one that this version knows, got {quote(unknown.type)}")
    closed = tuple(_close_approval(part) for part in decoded)
    return message if closed == tuple(decoded) else msgspec.structs.replace(message, parts=closed)


def check_thread(record: ThreadRecord, *, keep_system: bool = False) -> ThreadRecord:
    """The record with its system prompt moved to its metadata, unless `keep_system`."""
    if record.system_prompt is None or keep_system:
        return record
    metadata = {**record.metadata, IMPORTED_PROMPT: record.system_prompt}
    return msgspec.structs.replace(record, system_prompt=None, metadata=metadata)


def _close_approval(part: Part) -> Part:
    if not isinstance(part, ToolPart) or part.state not in ("approval-requested", "approval-responded"):
        return part
    return msgspec.structs.replace(part, state="output-error", error=_NOT_APPROVED, approval=None)

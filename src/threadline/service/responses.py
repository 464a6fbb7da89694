"""Answers as JSON, and the values of the house as the API spells them.

Keys are camelCase, times are RFC 3339 in UTC, and what is None is left out: clients reject a null where they expect
an optional key. The structs are also what the OpenAPI document is made from.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, TypeAlias

import msgspec
from starlette.responses import Response

from threadline.core.messages import Role
from threadline.core.threads import Hit, SavedPoint, Thread, Timeline

Moment: TypeAlias = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_encode = msgspec.json.Encoder().encode


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return raw_answer(_encode(value), status, headers)


def raw_answer(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


class Shown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A value as it is answered: a field that may be None has None as its default, and is left out then."""


class Done(Shown, frozen=True):
    ok: bool


class ThreadShown(Shown, frozen=True):
    """A thread as its owner sees it, without its messages."""

    state_key: str
    id: str
    timeline_id: str
    message_count: int
    token_count: int
    created_at: Moment
    updated_at: Moment
    title: str | None = None
    agent_id: str | None = None
    model: str | None = None
    metadata: dict[str, Any] | None = None
    archived_at: Moment | None = None


class UiPart(Shown, frozen=True):
    """A part of an AI SDK UIMessage: `type` says which, the other keys are those that this type has."""

    type: str
    text: str | None = None


class UiMessage(Shown, frozen=True):
    """A message as the AI SDK has it."""

    id: str
    role: Role
    parts: list[UiPart]
    metadata: dict[str, Any] | None = None


class ParentShown(Shown, frozen=True):
    timeline_id: str
    seq: int


class TimelineShown(Shown, frozen=True):
    """A run of messages that a thread stands on, or stood on. `parent` is where it forked."""

    id: str
    current: bool
    message_count: int
    created_at: Moment
    parent: ParentShown | None = None


class SavedPointShown(Shown, frozen=True):
    """A name for a place in a thread: everything up to and with `seq`."""

    name: str
    thread_id: str
    timeline_id: str
    seq: int
    created_at: Moment


class HitShown(Shown, frozen=True):
    """A message that a search found."""

    state_key: str
    message_id: str
    seq: int
    role: str
    snippet: str
    created_at: Moment
    title: str | None = None


def thread_json(thread: Thread) -> ThreadShown:
    return ThreadShown(
        state_key=thread.state_key,
        id=thread.id,
        title=thread.title,
        agent_id=thread.agent_id,
        model=thread.model,
        timeline_id=thread.timeline_id,
        message_count=thread.message_count,
        token_count=thread.token_count,
        metadata=thread.metadata or None,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
        archived_at=thread.archived_at,
    )


def timeline_json(timeline: Timeline, thread: Thread) -> TimelineShown:
    parent = timeline.parent
    return TimelineShown(
        id=timeline.id,
        current=timeline.id == thread.timeline_id,
        parent=None if parent is None else ParentShown(parent.timeline_id, parent.seq),
        message_count=timeline.message_count,
        created_at=timeline.created_at,
    )


def saved_point_json(saved: SavedPoint) -> SavedPointShown:
    return SavedPointShown(
        name=saved.name,
        thread_id=saved.thread_id,
        timeline_id=saved.point.timeline_id,
        seq=saved.point.seq,
        created_at=saved.created_at,
    )


def hit_json(hit: Hit) -> HitShown:
    return HitShown(
        state_key=hit.state_key,
        title=hit.title,
        message_id=hit.message_id,
        seq=hit.seq,
        role=hit.role,
        snippet=hit.snippet,
        created_at=hit.created_at,
    )

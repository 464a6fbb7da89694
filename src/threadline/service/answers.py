"""Answers as JSON, and the values of the house as the API spells them.

Keys are camelCase, times are RFC 3339 in UTC, and what is absent is left out: clients reject a null where they expect
an optional key.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
from starlette.responses import Response

from threadline.core.threads import Hit, SavedPoint, Thread, Timeline
from threadline.core.turns import Turn

_encode = msgspec.json.Encoder().encode


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return raw_answer(_encode(value), status, headers)


def raw_answer(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


def thread_json(thread: Thread) -> dict[str, Any]:
    return present(
        stateKey=thread.state_key,
        id=thread.id,
        title=thread.title,
        agentId=thread.agent_id,
        model=thread.model,
        timelineId=thread.timeline_id,
        messageCount=thread.message_count,
        tokenCount=thread.token_count,
        metadata=thread.metadata or None,
        createdAt=moment(thread.created_at),
        updatedAt=moment(thread.updated_at),
        archivedAt=moment(thread.archived_at),
    )


def timeline_json(timeline: Timeline, thread: Thread) -> dict[str, Any]:
    parent = timeline.parent
    return present(
        id=timeline.id,
        current=timeline.id == thread.timeline_id,
        parent=None if parent is None else {"timelineId": parent.timeline_id, "seq": parent.seq},
        messageCount=timeline.message_count,
        createdAt=moment(timeline.created_at),
    )


def saved_point_json(saved: SavedPoint) -> dict[str, Any]:
    return present(
        name=saved.name,
        threadId=saved.thread_id,
        timelineId=saved.point.timeline_id,
        seq=saved.point.seq,
        createdAt=moment(saved.created_at),
    )


def hit_json(hit: Hit) -> dict[str, Any]:
    return present(
        stateKey=hit.state_key,
        title=hit.title,
        messageId=hit.message_id,
        seq=hit.seq,
        role=hit.role,
        snippet=hit.snippet,
        createdAt=moment(hit.created_at),
    )


def turn_json(turn: Turn) -> dict[str, Any]:
    return present(id=turn.id, status=turn.status, error=turn.error, usage=turn.usage or None)


def present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def moment(moment: dt.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")

"""JSON responses, and core values as the structs of `threadline.api_types`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.responses import Response

from threadline.api_search_types import SearchHit, ThreadSearchHit
from threadline.api_types import (
    ApiStruct,
    ForkPoint,
    SavedPointInfo,
    ThreadInfo,
    TimelineInfo,
    TokenUsage,
    TurnInfo,
)
from threadline.core.events import Usage
from threadline.core.messages import Message, to_ui
from threadline.core.threads import Hit, SavedPoint, Thread, ThreadHits, Timeline
from threadline.core.turns import Turn

_NO_MESSAGES = b'"messages":[]}'
_encode = msgspec.json.Encoder().encode


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers, media_type="application/json")


def messages_response(body: ApiStruct, messages: Iterable[Message]) -> Response:
    """`body` ends with an empty list of messages. Stored bytes go into it as they are: decoding ten thousand messages
    to encode them again would take most of the request."""
    head = _encode(body)
    assert head.endswith(_NO_MESSAGES), "`messages` is the last field and has no default"
    written = head.removesuffix(_NO_MESSAGES) + b'"messages":[' + b",".join(map(to_ui, messages)) + b"]}"
    return Response(written, media_type="application/json")


def thread_info(thread: Thread) -> ThreadInfo:
    return ThreadInfo(**thread_fields(thread))


def thread_fields(thread: Thread) -> dict[str, Any]:
    return {
        "state_key": thread.state_key,
        "id": thread.id,
        "owner_id": thread.owner_id,
        "title": thread.title,
        "title_by_person": thread.title_by_person,
        "agent_id": thread.agent_id,
        "model": thread.model,
        "system_prompt": thread.system_prompt,
        "working_dir": thread.working_dir,
        "timeline_id": thread.timeline_id,
        "message_count": thread.message_count,
        "token_count": thread.token_count,
        "metadata": thread.metadata,
        "created_at": thread.created_at,
        "updated_at": thread.updated_at,
        "archived_at": thread.archived_at,
        "deleted_at": thread.deleted_at,
    }


def timeline_info(timeline: Timeline, thread: Thread) -> TimelineInfo:
    parent = timeline.parent
    return TimelineInfo(
        id=timeline.id,
        current=timeline.id == thread.timeline_id,
        parent=None if parent is None else ForkPoint(parent.timeline_id, parent.seq),
        message_count=timeline.message_count,
        created_at=timeline.created_at,
    )


def saved_point_info(saved: SavedPoint) -> SavedPointInfo:
    return SavedPointInfo(
        name=saved.name,
        thread_id=saved.thread_id,
        timeline_id=saved.point.timeline_id,
        seq=saved.point.seq,
        created_at=saved.created_at,
    )


def search_hit(hit: Hit) -> SearchHit:
    return SearchHit(
        thread_id=hit.thread_id,
        state_key=hit.state_key,
        title=hit.title,
        message_id=hit.message_id,
        seq=hit.seq,
        role=hit.role,
        snippet=hit.snippet,
        created_at=hit.created_at,
    )


def thread_search_hit(found: ThreadHits) -> ThreadSearchHit:
    return ThreadSearchHit(
        thread_id=found.thread_id,
        state_key=found.state_key,
        title=found.title,
        updated_at=found.updated_at,
        title_match=found.is_title_match,
        hit_count=found.hit_count,
        hits=[search_hit(hit) for hit in found.hits],
    )


def _usage(stored: dict[str, Any]) -> TokenUsage | None:
    counts = {name: stored.get(name, 0) for name in Usage.__struct_fields__}
    return TokenUsage(**counts, cost=stored.get("cost")) if stored else None


def turn_info(turn: Turn) -> TurnInfo:
    return TurnInfo(**turn_fields(turn))


def turn_fields(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "thread_id": turn.thread_id,
        "status": turn.status,
        "surface": turn.surface,
        "agent_id": turn.agent_id,
        "error": turn.error,
        "provider": turn.provider,
        "model": turn.model,
        "usage": _usage(turn.usage),
        "prompt_tokens": turn.prompt_tokens,
        "window_tokens": turn.window_tokens,
        "request_seq": turn.request_seq,
        "reply_seq": turn.reply_seq,
        "created_at": turn.created_at,
        "finished_at": turn.finished_at,
        "taken_by": turn.taken_by,
    }

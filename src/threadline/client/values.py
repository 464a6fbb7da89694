"""Response bodies of the service as the values that the library returns."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from threadline import api_search_types as search_api
from threadline import api_types as api
from threadline.core import jsontext
from threadline.core.channels import ContextSnapshot
from threadline.core.errors import ServiceUnavailable
from threadline.core.messages import Message, to_us
from threadline.core.threads import Hit, Point, SavedPoint, Thread, ThreadHits, Timeline
from threadline.core.turns import Summary, TurnInfo
from threadline.core.usage import UsageRow

T = TypeVar("T")
_USAGE_FIELDS = tuple(name for name in UsageRow.__struct_fields__ if name not in ("user_id", "agent_id"))


class MaybeThread(msgspec.Struct, frozen=True):
    """The only key that tells a thread from a state key without one."""

    id: str | None = None


def read(body: bytes, shape: type[T]) -> T:
    """ServiceUnavailable for a body of another shape: not a Threadline service, or an incompatible version."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ServiceUnavailable(f"service sent an unexpected body: {exc}") from exc


def to_thread(info: api.ThreadInfo) -> Thread:
    return Thread(**_fields(info, Thread))


def to_hit(hit: search_api.SearchHit) -> Hit:
    return Hit(**_fields(hit, Hit))


def to_thread_hits(found: search_api.ThreadSearchHit) -> ThreadHits:
    return ThreadHits(
        thread_id=found.thread_id,
        state_key=found.state_key,
        title=found.title,
        updated_at=found.updated_at,
        is_title_match=found.title_match,
        hit_count=found.hit_count,
        hits=tuple(to_hit(hit) for hit in found.hits),
    )


def to_context(pinned: api.PinnedContext) -> ContextSnapshot:
    return ContextSnapshot(**_fields(pinned, ContextSnapshot))


def to_turn(info: api.TurnInfo) -> TurnInfo:
    usage = {} if info.usage is None else msgspec.structs.asdict(info.usage)
    if usage.get("cost", 0) is None:
        del usage["cost"]
    return TurnInfo(**{**_fields(info, TurnInfo), "usage": usage})


def to_usage(entry: api.UsageEntry) -> UsageRow:
    return UsageRow(user_id=entry.user, agent_id=entry.agent, **{name: getattr(entry, name) for name in _USAGE_FIELDS})


def to_summary(found: api.SummaryResponse) -> Summary | None:
    if found.timeline_id is None or found.seq is None or found.text is None or found.created_at is None:
        return None
    point = Point(found.timeline_id, found.seq)
    return Summary(point, found.text, found.created_at, found.source or "extract", found.model)


def to_message(stored: api.StoredMessage) -> Message:
    return Message(
        id=stored.id,
        role=stored.role,
        timeline_id=stored.timeline_id,
        seq=stored.seq,
        parts_json=bytes(stored.parts),
        metadata_json=jsontext.write(stored.metadata, "metadata") if stored.metadata else None,
        turn_id=stored.turn_id,
        created_us=to_us(stored.created_at),
    )


def to_timeline(info: api.TimelineInfo, thread_id: str) -> Timeline:
    parent = None if info.parent is None else Point(info.parent.timeline_id, info.parent.seq)
    return Timeline(info.id, thread_id, parent, info.message_count, info.created_at)


def to_saved_point(info: api.SavedPointInfo) -> SavedPoint:
    return SavedPoint(info.name, Point(info.timeline_id, info.seq), info.thread_id, info.created_at)


def _fields(body: msgspec.Struct, shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The body's fields of the same names."""
    return {name: getattr(body, name) for name in shape.__struct_fields__}

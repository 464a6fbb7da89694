"""What a service answers, as the values that the house itself uses. What it does not tell is left empty."""

from __future__ import annotations

from threadline.api_types import SavedPointInfo, ThreadInfo, TimelineInfo, TurnInfo
from threadline.client.values import UiMessage
from threadline.core import jsontext
from threadline.core.messages import Message, to_us
from threadline.core.threads import Point, SavedPoint, Thread, Timeline
from threadline.core.turns import Turn


def to_thread(info: ThreadInfo, owner_id: str) -> Thread:
    """Under its state key, by which it is found over HTTP."""
    return Thread(
        id=info.state_key,
        owner_id=owner_id,
        state_key=info.state_key,
        timeline_id=info.timeline_id,
        title=info.title,
        title_by_person=False,
        agent_id=info.agent_id,
        model=info.model,
        system_prompt=None,
        working_dir=None,
        metadata=info.metadata,
        message_count=info.message_count,
        token_count=info.token_count,
        created_at=info.created_at,
        updated_at=info.updated_at,
        archived_at=info.archived_at,
        deleted_at=None,
    )


def to_turn(info: TurnInfo, turn_id: str, thread_id: str, owner_id: str) -> Turn:
    return Turn(
        id=turn_id,
        owner_id=owner_id,
        thread_id=thread_id,
        surface=info.surface,
        agent_id=info.agent_id,
        status=info.status,
        idempotency_key=None,
        request_hash=None,
        request_seq=info.request_seq,
        reply_seq=info.reply_seq,
        error=info.error,
        usage=info.usage or {},
        seen={},
        lease_owner=None,
        lease_until=None,
        fence=0,
        created_at=info.created_at,
        finished_at=info.finished_at,
    )


def to_message(shown: UiMessage, turn: Turn, info: ThreadInfo) -> Message:
    return Message(
        id=shown.id,
        role=shown.role,
        timeline_id=info.timeline_id,
        seq=shown.seq,
        parts_json=shown.parts_json,
        metadata_json=jsontext.dump(shown.metadata, "metadata") if shown.metadata else None,
        turn_id=turn.id,
        created_us=to_us(turn.finished_at or turn.created_at),
    )


def to_timeline(info: TimelineInfo, thread_id: str) -> Timeline:
    parent = None if info.parent is None else Point(info.parent.timeline_id, info.parent.seq)
    return Timeline(info.id, thread_id, parent, info.message_count, info.created_at)


def to_saved_point(info: SavedPointInfo) -> SavedPoint:
    return SavedPoint(info.name, Point(info.timeline_id, info.seq), info.thread_id, info.created_at)

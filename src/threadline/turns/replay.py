"""The stream of a turn whose chunks are dropped, made from what the turn left: its reply and its end."""

from __future__ import annotations

from threadline.core import events
from threadline.core.event_replay import events_of
from threadline.core.messages import Message
from threadline.core.turns import Chunk, Turn
from threadline.ports import Transaction
from threadline.turns.acceptance import reply_id


async def replayed(tx: Transaction, turn: Turn) -> list[Chunk]:
    reply = await _reply(tx, turn)
    begun = turn.seen.get("begun", {})
    parts = () if reply is None else reply.parts
    said = events_of(parts, known=begun.get("parts", 0), still_open=begun.get("open", ()))
    asks = any(isinstance(event, events.ApprovalRequest) for event in said)
    done = turn.status == "executed"
    end = events.Finish("tool-calls" if asks else "stop") if done else events.Failure(turn.error or turn.status)
    return [Chunk(number, events.to_json(event)) for number, event in enumerate([*said, end], start=1)]


async def _reply(tx: Transaction, turn: Turn) -> Message | None:
    """The reply as this turn left it, on whichever timeline that is."""
    if turn.reply_seq is None or await tx.thread(turn.thread_id) is None:
        return None
    present = await tx.message(turn.thread_id, reply_id(turn.id))
    if present is not None and present.turn_id == turn.id and present.seq == turn.reply_seq:
        return present
    for timeline in reversed(await tx.timelines(turn.thread_id)):
        found = await tx.messages(turn.thread_id, first=turn.reply_seq, last=turn.reply_seq, timeline_id=timeline.id)
        if found and found[0].turn_id == turn.id:
            return found[0]
    return None

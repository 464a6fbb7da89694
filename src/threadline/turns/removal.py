"""Deletes turns and messages from what people and agents read: their messages are hidden, see `core.hidden_parts`."""

from __future__ import annotations

from collections.abc import Sequence

from threadline.core.errors import NotFound
from threadline.core.hidden_parts import HiddenPart
from threadline.core.ids import title_from
from threadline.core.messages import Message
from threadline.core.sealing import CleanText
from threadline.core.turn_options import options_in
from threadline.core.turns import BEGUN, Turn, reply_id, root_turn_id
from threadline.ports import StoreSession
from threadline.turns.continuations import find_timeline
from threadline.turns.streams import find_reply

_LOOKED_AT = 50
_UNTITLED = "New chat"


async def hide_message(session: StoreSession, thread_id: str, message: Message, part: int | None = None) -> None:
    """Hides a message; with `part`, only this part of it, if it has others."""
    is_last = len(message.parts) <= 1
    mark = HiddenPart(message.timeline_id, message.seq)
    if part is not None and not is_last:
        mark = mark._replace(part=part)
    await session.hide_parts(thread_id, [mark])
    await _rename(session, thread_id, [message])


async def hide_turn(session: StoreSession, turn: Turn) -> None:
    """Hides a turn that has ended: its request with the messages that came with it, and what it wrote. Of a reply that
    several turns wrote, only this turn's parts. NotFound if nothing of it is left."""
    said = await _request_messages(session, turn)
    marks = [*await _reply_marks(session, turn), *(HiddenPart(each.timeline_id, each.seq) for each in said)]
    if not marks:
        raise NotFound("turn", turn.id)
    await session.hide_parts(turn.thread_id, marks, turn_id=turn.id)
    await _rename(session, turn.thread_id, said)


async def _rename(session: StoreSession, thread_id: str, hidden: Sequence[Message]) -> None:
    """A title that was made from a message that is hidden now is made again from the next one."""
    thread = await session.thread(thread_id)
    titles = {title_from(message.text) for message in hidden if message.role == "user"}
    if thread is None or thread.title_by_person or thread.title not in titles:
        return
    left = await session.messages(thread_id, limit=_LOOKED_AT)
    text = next((message.text for message in left if message.role == "user" and message.text.strip()), "")
    await session.suggest_title(thread_id, CleanText(title_from(text) if text else _UNTITLED))


async def _reply_marks(session: StoreSession, turn: Turn) -> list[HiddenPart]:
    reply = await find_reply(session, turn)
    if reply is None:
        return []
    first, end = turn.seen.get(BEGUN, {}).get("parts", 0), _part_count(reply)
    versions = {(reply.timeline_id, reply.seq): reply}
    # A later turn may have continued the reply: then its version has this turn's parts too.
    present = await session.message(turn.thread_id, reply_id(turn.id))
    if present is not None:
        versions[present.timeline_id, present.seq] = present
    marks: list[HiddenPart] = []
    for (timeline_id, seq), version in versions.items():
        is_all = first == 0 and _part_count(version) <= end
        numbers = [] if is_all else range(first, end)
        marks += [HiddenPart(timeline_id, seq, number) for number in numbers] or [HiddenPart(timeline_id, seq)]
    return marks


async def _request_messages(session: StoreSession, turn: Turn) -> list[Message]:
    if turn.request_seq is None or turn.id != root_turn_id(turn.id):
        return []
    thread = await session.thread(turn.thread_id)
    timeline_id = None if thread is None else await find_timeline(session, thread, turn)
    if timeline_id is None:
        return []
    first = turn.request_seq - options_in(turn.seen).earlier
    return await session.messages(turn.thread_id, first=first, last=turn.request_seq, timeline_id=timeline_id)


def _part_count(message: Message) -> int:
    return len(message.parts) + len(message.hidden)

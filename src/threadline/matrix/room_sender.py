"""RoomSender: carries out deliveries at the homeserver.

A delivery may be carried out again after a crash: messages have transaction ids, rooms are found by their own state. So
nothing appears twice.
"""

from __future__ import annotations

import logging

from threadline.core.platform_messages import Outcome, Permanent, Sent, Transient
from threadline.core.room_messages import RoomBinding, RoomMessage, RoomRequest, decode
from threadline.matrix import message_format
from threadline.matrix.bridge import RoomDelivery
from threadline.matrix.events_in import ROOM_STATE, read_recipient
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.reply_stream import LiveViews, RoomReply
from threadline.matrix.room_powers import may_set
from threadline.matrix.rooms import RoomFactory, with_binding

log = logging.getLogger("threadline.matrix")

# Replies that may be redacted before their delivery is settled: a few; the rest is read from the delivery.
_REMEMBERED = 1_000
_NAME_REFUSED = "I am not allowed to rename this room."
_NO_POWER = "The room keeps its name: you are not allowed to rename it."


class RoomSender:
    def __init__(self, homeserver: Homeserver, rooms: RoomFactory, views: LiveViews) -> None:
        self._homeserver = homeserver
        self._rooms = rooms
        self._views = views
        self._sent: dict[str, list[str]] = {}
        """Messages of the latest replies, by turn: a redaction may be enqueued before they are stored."""

    async def send(self, delivery: RoomDelivery) -> Outcome:
        payload = decode(delivery.payload)
        try:
            if isinstance(payload, RoomRequest):
                asked_in = read_recipient(delivery.recipient).room_id
                return await self._rooms.open(payload, asked_in, may_exist=delivery.attempts > 0)
            return Sent(await self._send_message(delivery, payload))
        except HomeserverAway as exc:
            return Transient(str(exc), is_outage=exc.is_outage)
        except HomeserverRefused as exc:
            return Permanent(str(exc))

    async def _send_message(self, delivery: RoomDelivery, message: RoomMessage) -> str | None:
        """The ids of the messages, with spaces between them; None if the room was changed without one."""
        target = read_recipient(delivery.recipient)
        for event_id in message.redacts or self._sent.get(message.redacts_turn or "", ()):
            await self._homeserver.redact(target.room_id, event_id)
        if message.binding is not None:
            await self._write_state(target.room_id, message.binding)
        text = message.text
        if message.name is not None:
            sender = None if message.binding is None else message.binding.sender
            refusal = await self._rename(target.room_id, message.name, sender)
            text = text if refusal is None else f"{text} {refusal}"
        if not text:
            return None
        view = None if delivery.turn_id is None else await self._views.stop(delivery.turn_id)
        name = delivery.turn_id or delivery.id
        # Without a view of this process, a view of an earlier one may have sent the message.
        may_exist = delivery.turn_id is not None
        reply = view.reply if view else RoomReply(self._homeserver, target, name, may_exist=may_exist)
        pieces = message_format.pieces(text)
        await reply.show(pieces, is_final=True, is_notice=message.is_notice, question=message.question)
        if delivery.turn_id is not None:
            self._views.forget(delivery.turn_id)
            self._sent[delivery.turn_id] = reply.event_ids
            while len(self._sent) > _REMEMBERED:
                self._sent.pop(next(iter(self._sent)))
        return " ".join(reply.event_ids)

    async def _write_state(self, room_id: str, binding: RoomBinding) -> None:
        """Other keys of the state are kept. A room whose state says that another user has it keeps that; one that
        does not let the bot write state works without."""
        try:
            before = await self._homeserver.state(room_id, ROOM_STATE) or {}
            after = with_binding(before, binding)
            is_theirs = before.get("matrix_id", binding.sender) == binding.sender
            if (is_theirs or binding.is_shared) and after != before:
                await self._homeserver.put_state(room_id, ROOM_STATE, after)
        except HomeserverRefused as exc:
            # Usual in rooms that others made: the binding in the database is enough.
            log.debug("room state not written: %s", exc, extra={"place": room_id})

    async def _rename(self, room_id: str, name: str, sender: str | None) -> str | None:
        """Why the room keeps its name; None if it has the new one."""
        try:
            if sender is not None and not await may_set(self._homeserver, room_id, sender, "m.room.name"):
                return _NO_POWER
            await self._homeserver.put_state(room_id, "m.room.name", {"name": name})
        except HomeserverRefused:
            return _NAME_REFUSED
        return None

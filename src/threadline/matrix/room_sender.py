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
from threadline.matrix.rooms import RoomFactory, room_state

log = logging.getLogger("threadline.matrix")

_NAME_REFUSED = "I am not allowed to rename this room."


class RoomSender:
    def __init__(self, homeserver: Homeserver, rooms: RoomFactory, views: LiveViews) -> None:
        self._homeserver = homeserver
        self._rooms = rooms
        self._views = views

    async def send(self, delivery: RoomDelivery) -> Outcome:
        payload = decode(delivery.payload)
        try:
            if isinstance(payload, RoomRequest):
                return await self._rooms.open(payload, may_exist=delivery.attempts > 0)
            await self._send_message(delivery, payload)
            return Sent()
        except HomeserverAway as exc:
            return Transient(str(exc), is_outage=exc.is_outage)
        except HomeserverRefused as exc:
            return Permanent(str(exc))

    async def _send_message(self, delivery: RoomDelivery, message: RoomMessage) -> None:
        target = read_recipient(delivery.recipient)
        if message.binding is not None:
            await self._write_state(target.room_id, message.binding)
        text = message.text
        if message.name is not None and not await self._rename(target.room_id, message.name):
            text = f"{text} {_NAME_REFUSED}"
        if not text:
            return
        view = None if delivery.turn_id is None else await self._views.stop(delivery.turn_id)
        name = delivery.turn_id or delivery.id
        # Without a view of this process, a view of an earlier one may have sent the message.
        may_exist = delivery.turn_id is not None
        reply = view.reply if view else RoomReply(self._homeserver, target, name, may_exist=may_exist)
        await reply.show(message_format.pieces(text), is_final=True, is_notice=message.is_notice)
        if delivery.turn_id is not None:
            self._views.forget(delivery.turn_id)

    async def _write_state(self, room_id: str, binding: RoomBinding) -> None:
        """Other keys of the state are kept. A room whose state says that another user has it keeps that; one that
        does not let the bot write state works without."""
        try:
            before = await self._homeserver.state(room_id, ROOM_STATE) or {}
            after = before | room_state(binding)
            if before.get("matrix_id", binding.sender) == binding.sender and after != before:
                await self._homeserver.put_state(room_id, ROOM_STATE, after)
        except HomeserverRefused as exc:
            log.info("room state not written: %s", exc, extra={"place": room_id})

    async def _rename(self, room_id: str, name: str) -> bool:
        try:
            await self._homeserver.put_state(room_id, "m.room.name", {"name": name})
        except HomeserverRefused:
            return False
        return True

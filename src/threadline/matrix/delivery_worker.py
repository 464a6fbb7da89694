"""The bot's delivery worker: claims rows of the outbox, carries them out at the homeserver, and settles them.

A row may be carried out again after a crash: messages have transaction ids, rooms are found by their own state. So
nothing appears twice.
"""

from __future__ import annotations

import asyncio
import functools
import logging

from threadline.core.platform_messages import Outcome, Permanent, Sent, Transient
from threadline.core.room_messages import RoomBinding, RoomMessage, RoomRequest, decode
from threadline.matrix import message_format
from threadline.matrix.bridge import Bridge, Delivery
from threadline.matrix.events_in import ROOM_STATE, read_recipient
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.reply_stream import LiveViews, RoomReply
from threadline.matrix.retry import retry_until_up
from threadline.matrix.room_factory import RoomFactory, room_state

log = logging.getLogger("threadline.matrix")

_PARALLEL = 10
# The most that the service allows. A row that is enqueued in the meantime ends the wait.
_WAIT_SECONDS = 5.0
_GRACE_SECONDS = 2.0
_NAME_REFUSED = "I am not allowed to rename this room."


class DeliveryWorker:
    def __init__(self, bridge: Bridge, homeserver: Homeserver, rooms: RoomFactory, views: LiveViews) -> None:
        self._bridge = bridge
        self._homeserver = homeserver
        self._rooms = rooms
        self._views = views
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled. TokenRefused if the service no longer accepts the bot."""
        try:
            while True:
                while len(self._tasks) >= _PARALLEL:
                    await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                for delivery in await retry_until_up(self._claim):
                    # A slow send may outlast its claim. It is still ours: do not send it twice at the same time.
                    if delivery.id not in self._tasks:
                        task = asyncio.create_task(self._deliver(delivery), name=f"delivery {delivery.id}")
                        self._tasks[delivery.id] = task
                        task.add_done_callback(functools.partial(self._forget, delivery.id))
        finally:
            await self._close()

    async def _claim(self) -> list[Delivery]:
        return await self._bridge.claim(limit=_PARALLEL - len(self._tasks), wait_seconds=_WAIT_SECONDS)

    def _forget(self, delivery_id: str, _: asyncio.Task[None]) -> None:
        self._tasks.pop(delivery_id, None)

    async def _close(self) -> None:
        """Running sends end first: a successor would send an interrupted one only after its claim has expired."""
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, delivery: Delivery) -> None:
        outcome = await self.send(delivery)
        if isinstance(outcome, Transient):
            log.warning("waiting: %s", outcome.reason, extra={"outbox_id": delivery.id})
        if not await retry_until_up(lambda: self._bridge.settle(delivery.id, outcome)):
            log.warning("claim lost while sending", extra={"outbox_id": delivery.id})

    async def send(self, delivery: Delivery) -> Outcome:
        payload = decode(delivery.payload)
        try:
            if isinstance(payload, RoomRequest):
                return await self._rooms.open(payload, may_exist=delivery.attempts > 0)
            await self._send_message(delivery, payload)
            return Sent()
        except HomeserverAway as exc:
            return Transient(str(exc))
        except HomeserverRefused as exc:
            return Permanent(str(exc))
        except Exception as exc:
            # A fault of ours must not block the rows behind it: it becomes a dead letter that an operator sees.
            log.exception("delivery failed", extra={"outbox_id": delivery.id})
            return Permanent(f"{type(exc).__name__} in the bot")

    async def _send_message(self, delivery: Delivery, message: RoomMessage) -> None:
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

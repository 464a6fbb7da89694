"""Reconciliation at the start: bindings and the rooms' own state are made to agree.

The bot's first sync has the state of every room it is in. A room that names its thread and is not bound is bound again;
a bound room whose state says something else, or nothing, is corrected. A second run changes nothing.
"""

from __future__ import annotations

import logging

from threadline.core.errors import ThreadlineError
from threadline.core.room_messages import RoomBinding
from threadline.matrix.bridge import Bridge
from threadline.matrix.events_in import ROOM_STATE, SPACE_STATE, Content, RawEvent
from threadline.matrix.homeserver import Batch, Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.room_factory import room_state
from threadline.messaging.bridges import Room

log = logging.getLogger("threadline.matrix")


class RoomReconciler:
    def __init__(self, bridge: Bridge, homeserver: Homeserver) -> None:
        self._bridge = bridge
        self._homeserver = homeserver

    async def reconcile(self, batch: Batch) -> None:
        bound = await self._bridge.rooms()
        spaces: list[Room] = []
        for joined in batch.rooms:
            here = [room for room in bound if room.place == joined.room_id]
            content = self._own_state(joined.state, ROOM_STATE)
            owner = None if content is None else content.get("matrix_id")
            if content is not None and owner is not None and not any(room.sender == owner for room in here):
                await self._restore(_lost_room(joined.room_id, content))
            elif here and not here[0].is_space:
                await self._correct(here, content)
            space = self._own_state(joined.state, SPACE_STATE)
            if space is not None and not here:
                spaces.append(_lost_room(joined.room_id, space, is_space=True))
        # After the rooms: a space continues to count after their labels.
        for lost in spaces:
            await self._restore(lost)

    def _own_state(self, state: list[RawEvent], kind: str) -> Content | None:
        """What the bot itself wrote into the room's state; others could name any thread there."""
        own = (each for each in state if each["type"] == kind and each["sender"] == self._homeserver.user_id)
        return next((each["content"] for each in own if each["content"].get("platform_chat_id")), None)

    async def _restore(self, room: Room) -> None:
        try:
            if await self._bridge.restore(room):
                log.info("room bound again", extra={"place": room.place})
        except ThreadlineError as exc:
            log.warning("room not bound again: %s", exc, extra={"place": room.place})

    async def _correct(self, here: list[Room], content: Content | None) -> None:
        owner = None if content is None else content.get("matrix_id")
        room = next((each for each in here if each.sender == owner), here[0])
        if (content or {}).get("platform_chat_id") == room.thread_id:
            return
        try:
            before = await self._homeserver.state(room.place, ROOM_STATE) or {}
            after = before | room_state(RoomBinding(room.thread_id, room.sender, room.label))
            await self._homeserver.put_state(room.place, ROOM_STATE, after)
        except (HomeserverRefused, HomeserverAway) as exc:
            log.info("room state not written: %s", exc, extra={"place": room.place})


def _lost_room(room_id: str, content: Content, *, is_space: bool = False) -> Room:
    label = content.get("label")
    return Room(
        place=room_id,
        sender=str(content.get("matrix_id")),
        thread_id=str(content["platform_chat_id"]),
        label=label if isinstance(label, str) else None,
        is_space=is_space,
    )

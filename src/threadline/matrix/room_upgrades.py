"""Upgraded rooms: threads, labels and sharing move to the room that replaces another.

Both rooms must name each other: the old one in its tombstone, which takes power there, and the new one in its creation.
The bot follows when the old room ends, or when it is invited to the new one. Safe to repeat: a thread is bound to the
new room before it is unbound from the old one.
"""

from __future__ import annotations

import logging

from threadline.core.room_messages import RoomBinding
from threadline.matrix.bridge import Bridge
from threadline.matrix.events_in import ROOM_STATE, Upgrade, departure
from threadline.matrix.homeserver import Homeserver, HomeserverRefused, retry_until_up
from threadline.matrix.rooms import room_state, server_of
from threadline.messaging.bridges import Room

log = logging.getLogger("threadline.matrix")


class RoomUpgrades:
    def __init__(self, bridge: Bridge, homeserver: Homeserver) -> None:
        self._bridge = bridge
        self._homeserver = homeserver

    async def follow(self, upgrade: Upgrade) -> None:
        """The old room ended. If the bot may not join the new one yet, the invitation to it does the rest."""
        try:
            await retry_until_up(lambda: self._homeserver.join(upgrade.replacement))
        except HomeserverRefused as exc:
            log.info("replacement of a room not joined: %s", exc, extra={"place": upgrade.replacement})
            return
        await self.arrive(upgrade.replacement)

    async def arrive(self, room_id: str) -> None:
        """The bot has joined a room: takes over what it replaces. HomeserverRefused."""
        old_id = await self._find_predecessor(room_id)
        if old_id is None:
            return
        rooms = await retry_until_up(self._bridge.rooms)
        here = [room for room in rooms if room.place == old_id and not room.is_space]
        for room in here:
            await self._move(room, room_id)
            for space in rooms:
                if space.is_space and space.sender == room.sender and room.label is not None:
                    await self._replace_child(space.place, old_id, room_id)
        if here:
            log.info("threads moved to the room that replaces theirs", extra={"place": room_id})

    async def _find_predecessor(self, room_id: str) -> str | None:
        try:
            create = await retry_until_up(lambda: self._homeserver.state(room_id, "m.room.create"))
            predecessor = (create or {}).get("predecessor")
            old_id = predecessor.get("room_id") if isinstance(predecessor, dict) else None
            if not isinstance(old_id, str):
                return None
            tombstone = await retry_until_up(lambda: self._homeserver.state(old_id, "m.room.tombstone"))
        except HomeserverRefused:
            # The bot was never in the old room, or was removed from it.
            return None
        return old_id if (tombstone or {}).get("replacement_room") == room_id else None

    async def _move(self, room: Room, room_id: str) -> None:
        new = Room(room_id, room.sender, room.thread_id, room.label, is_shared=room.is_shared)
        await retry_until_up(lambda: self._bridge.restore(new))
        left = departure(room.place, room.sender, f"upgrade {room.place} {room.sender}")
        await retry_until_up(lambda: self._bridge.deliver(left))
        state = room_state(RoomBinding(room.thread_id, room.sender, room.label, room.is_shared))
        await self._put(room_id, ROOM_STATE, state)

    async def _replace_child(self, space_id: str, old_id: str, room_id: str) -> None:
        via = [server_of(self._homeserver.user_id)]
        await self._put(room_id, "m.space.parent", {"via": via, "canonical": True}, space_id)
        await self._put(space_id, "m.space.child", {"via": via}, room_id)
        await self._put(space_id, "m.space.child", {}, old_id)

    async def _put(self, room_id: str, kind: str, content: dict[str, object], state_key: str = "") -> None:
        try:
            await retry_until_up(lambda: self._homeserver.put_state(room_id, kind, content, state_key))
        except HomeserverRefused as exc:
            # The bindings are what counts; the bot may lack the power in the new room.
            log.debug("room state not written: %s", exc, extra={"place": room_id})

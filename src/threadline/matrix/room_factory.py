"""Opens rooms: a user's space with its first room, and each room after that.

A room carries the id of its thread in its own state, so that a repeated request finds the room of an earlier attempt
instead of making another. If the homeserver refuses a step, the rooms of this attempt are left again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from threadline.core.platform_messages import Opened
from threadline.core.room_messages import RoomBinding, RoomRequest
from threadline.matrix.events_in import ROOM_STATE, SPACE_STATE, Content, RawEvent
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.settings import MatrixSettings

log = logging.getLogger("threadline.matrix")

_ENCRYPTION: RawEvent = {
    "type": "m.room.encryption",
    "state_key": "",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


class RoomFactory:
    def __init__(self, homeserver: Homeserver, settings: MatrixSettings) -> None:
        self._homeserver = homeserver
        self._settings = settings

    async def open(self, request: RoomRequest, *, may_exist: bool) -> Opened:
        """The room, in its space, with the user invited. `may_exist`: an earlier attempt may have made it.
        HomeserverRefused: nothing is left of it. HomeserverAway: call it again."""
        made: list[str] = []
        binding = request.binding
        try:
            space_id = request.space or await self._open_space(binding, made, may_exist=may_exist)
            room_id = await self._open_room(space_id, binding, request.name, made, may_exist=may_exist)
        except HomeserverRefused:
            await self._abandon(made, binding.sender)
            raise
        for each in made:
            await self._hand_over(each, binding.sender)
        return Opened(room_id, f"https://matrix.to/#/{room_id}", None if request.space else space_id)

    async def _open_space(self, binding: RoomBinding, made: list[str], *, may_exist: bool) -> str:
        content = {"platform_chat_id": binding.thread_id, "matrix_id": binding.sender}
        state: list[RawEvent] = [{"type": SPACE_STATE, "state_key": "", "content": content}]
        space_id = await self._find(SPACE_STATE, binding.thread_id) if may_exist else None
        space_id = space_id or await self._create("Threadline", binding, state, is_space=True)
        made.append(space_id)
        return space_id

    async def _open_room(
        self, space_id: str, binding: RoomBinding, name: str, made: list[str], *, may_exist: bool
    ) -> str:
        via = [server_of(self._settings.user)]
        state: list[RawEvent] = [
            {"type": ROOM_STATE, "state_key": "", "content": room_state(binding)},
            {"type": "m.space.parent", "state_key": space_id, "content": {"via": via, "canonical": True}},
            *([_ENCRYPTION] if self._settings.encrypt else []),
        ]
        room_id = await self._find(ROOM_STATE, binding.thread_id) if may_exist else None
        room_id = room_id or await self._create(name, binding, state)
        made.append(room_id)
        await self._homeserver.put_state(space_id, "m.space.child", {"via": via}, room_id)
        return room_id

    async def _create(
        self, name: str, binding: RoomBinding, state: Sequence[RawEvent], *, is_space: bool = False
    ) -> str:
        return await self._homeserver.create_room(name, invite=[binding.sender], state=state, space=is_space)

    async def _find(self, kind: str, thread_id: str) -> str | None:
        for room_id in await self._homeserver.joined_rooms():
            content = await self._homeserver.state(room_id, kind)
            if content is not None and content.get("platform_chat_id") == thread_id:
                return room_id
        return None

    async def _hand_over(self, room_id: str, matrix_id: str) -> None:
        """Gives the user the same power level as the bot. The room works without, so a failure is only logged."""
        try:
            powers = await self._homeserver.state(room_id, "m.room.power_levels") or {}
            users = {**powers.get("users", {}), matrix_id: 100}
            await self._homeserver.put_state(room_id, "m.room.power_levels", {**powers, "users": users})
        except (HomeserverRefused, HomeserverAway) as exc:
            log.warning("power level not set: %s", exc, extra={"place": room_id})

    async def _abandon(self, made: list[str], matrix_id: str) -> None:
        for room_id in made:
            try:
                await self._homeserver.abandon(room_id, matrix_id)
            except (HomeserverRefused, HomeserverAway) as exc:
                log.warning("room not left: %s", exc, extra={"place": room_id})


def room_state(binding: RoomBinding) -> Content:
    """What a room's state event says of its binding."""
    content = {"platform_chat_id": binding.thread_id, "matrix_id": binding.sender, "label": binding.label}
    return {name: value for name, value in content.items() if value is not None}


def server_of(matrix_id: str) -> str:
    return matrix_id.partition(":")[2]

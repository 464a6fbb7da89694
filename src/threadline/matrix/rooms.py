"""The bot's rooms: opens them, and makes their own state agree with the bindings.

A room carries the id of its thread in its own state, so that a repeated request finds the room of an earlier attempt
instead of making another, and a binding that was lost is restored from it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from threadline.core.errors import ThreadlineError
from threadline.core.platform_messages import Opened
from threadline.core.room_messages import RoomBinding, RoomRequest
from threadline.matrix.bridge import Bridge
from threadline.matrix.events_in import ROOM_STATE, SPACE_STATE, Content, RawEvent
from threadline.matrix.homeserver import Batch, Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.room_powers import CREATORS_RULE
from threadline.messaging.bridges import Room
from threadline.messaging.shared_rooms import SHARED
from threadline.settings import MatrixSettings

log = logging.getLogger("threadline.matrix")

_ENCRYPTION: RawEvent = {
    "type": "m.room.encryption",
    "state_key": "",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


class RoomFactory:
    """Opens a user's space with its first room, and each room after that. If the homeserver refuses a step, the rooms
    of this attempt are left again."""

    def __init__(self, homeserver: Homeserver, settings: MatrixSettings) -> None:
        self._homeserver = homeserver
        self._settings = settings

    async def open(self, request: RoomRequest, asked_in: str, *, may_exist: bool) -> Opened:
        """The room, in its space, with the user invited; encrypted if the room is in which it was asked for.
        `may_exist`: an earlier attempt may have made it. HomeserverRefused: nothing is left of it. HomeserverAway: call
        it again."""
        made: list[str] = []
        binding = request.binding
        try:
            space_id = request.space or await self._open_space(binding, made, may_exist=may_exist)
            for room in request.rooms:
                await self._add_child(space_id, room)
            room_id = space_id
            if not request.is_space_only:
                is_encrypted = self._settings.encrypt or await self._is_encrypted(asked_in)
                room_id = await self._open_room(
                    space_id, binding, _room_name(request), made, is_encrypted=is_encrypted, may_exist=may_exist
                )
            # Last, so that a room that is left again was never seen by its user.
            for each in made:
                await self._hand_over(each, binding.sender)
        except HomeserverRefused:
            await self._abandon(made)
            raise
        return Opened(room_id, f"https://matrix.to/#/{room_id}", None if request.space else space_id)

    async def _open_space(self, binding: RoomBinding, made: list[str], *, may_exist: bool) -> str:
        content = {"platform_chat_id": binding.thread_id, "matrix_id": binding.sender}
        state: list[RawEvent] = [{"type": SPACE_STATE, "state_key": "", "content": content}]
        space_id = await self._find(SPACE_STATE, binding.thread_id) if may_exist else None
        space_id = space_id or await self._create("Threadline", binding, state, is_space=True)
        made.append(space_id)
        return space_id

    async def _open_room(
        self,
        space_id: str,
        binding: RoomBinding,
        name: str,
        made: list[str],
        *,
        is_encrypted: bool,
        may_exist: bool,
    ) -> str:
        via = [server_of(self._settings.user)]
        state: list[RawEvent] = [
            {"type": ROOM_STATE, "state_key": "", "content": room_state(binding)},
            {"type": "m.space.parent", "state_key": space_id, "content": {"via": via, "canonical": True}},
            *([_ENCRYPTION] if is_encrypted else []),
        ]
        room_id = await self._find(ROOM_STATE, binding.thread_id) if may_exist else None
        room_id = room_id or await self._create(name, binding, state)
        made.append(room_id)
        await self._add_child(space_id, room_id)
        return room_id

    async def _add_child(self, space_id: str, room_id: str) -> None:
        via = [server_of(self._settings.user)]
        await self._homeserver.put_state(space_id, "m.space.child", {"via": via}, room_id)

    async def _is_encrypted(self, room_id: str) -> bool:
        """A branch of an encrypted room quotes it: it must not be readable where the room is not. If the bot is no
        longer in that room, it counts as encrypted."""
        try:
            return await self._homeserver.state(room_id, "m.room.encryption") is not None
        except HomeserverRefused:
            return True

    async def _create(
        self, name: str, binding: RoomBinding, state: Sequence[RawEvent], *, is_space: bool = False
    ) -> str:
        return await self._homeserver.create_room(name, owner=binding.sender, state=state, space=is_space)

    async def _find(self, kind: str, thread_id: str) -> str | None:
        for room_id in await self._homeserver.joined_rooms():
            content = await self._homeserver.state(room_id, kind)
            if content is not None and content.get("platform_chat_id") == thread_id:
                return room_id
        return None

    async def _hand_over(self, room_id: str, matrix_id: str) -> None:
        """Invites the user, with the same powers as the bot. Before room version 12 they are a power level; the room
        works without, so a failure is only logged."""
        try:
            version = str((await self._homeserver.state(room_id, "m.room.create") or {}).get("room_version", "1"))
            if not version.isdigit() or int(version) < CREATORS_RULE:
                powers = await self._homeserver.state(room_id, "m.room.power_levels") or {}
                users = {**powers.get("users", {}), matrix_id: 100}
                await self._homeserver.put_state(room_id, "m.room.power_levels", {**powers, "users": users})
        except HomeserverRefused as exc:
            log.warning("power level not set: %s", exc, extra={"place": room_id})
        await self._homeserver.invite(room_id, matrix_id)

    async def _abandon(self, made: list[str]) -> None:
        for room_id in made:
            try:
                await self._homeserver.leave(room_id)
            except (HomeserverRefused, HomeserverAway) as exc:
                log.warning("room not left: %s", exc, extra={"place": room_id})


class RoomReconciler:
    """Runs at the start. The bot's first sync has the state of every room it is in. A room that names its thread and is
    not bound is bound again; a bound room whose state says something else, or nothing, is corrected. A second run
    changes nothing."""

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
            is_present = owner is not None and owner in self._homeserver.people(joined.room_id)
            if content is not None and is_present and not any(room.sender == owner for room in here):
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
        shared = next((each for each in here if each.is_shared), None)
        room = shared or next((each for each in here if each.sender == owner), here[0])
        binding = RoomBinding(room.thread_id, room.sender, room.label, room.is_shared)
        known = content or {}
        if known.get("platform_chat_id") == room.thread_id and bool(known.get(SHARED)) == room.is_shared:
            return
        try:
            before = await self._homeserver.state(room.place, ROOM_STATE) or {}
            await self._homeserver.put_state(room.place, ROOM_STATE, with_binding(before, binding))
        except (HomeserverRefused, HomeserverAway) as exc:
            # Usual in rooms that others made: the binding in the database is enough.
            log.debug("room state not written: %s", exc, extra={"place": room.place})


def room_state(binding: RoomBinding) -> Content:
    """What a room's state event says of its binding."""
    content = {
        "platform_chat_id": binding.thread_id,
        "matrix_id": binding.sender,
        "label": binding.label,
        SHARED: True if binding.is_shared else None,
    }
    return {name: value for name, value in content.items() if value is not None}


def _room_name(request: RoomRequest) -> str:
    """With the label, by which people name the room in commands."""
    label = request.binding.label
    return request.name if label in (None, request.name) else f"{label} {request.name}"


def with_binding(before: Content, binding: RoomBinding) -> Content:
    """A room's state event after a change of its binding; other keys are kept."""
    return {name: value for name, value in before.items() if name != SHARED} | room_state(binding)


def server_of(matrix_id: str) -> str:
    return matrix_id.partition(":")[2]


def _lost_room(room_id: str, content: Content, *, is_space: bool = False) -> Room:
    label = content.get("label")
    return Room(
        place=room_id,
        sender=str(content.get("matrix_id")),
        thread_id=str(content["platform_chat_id"]),
        label=label if isinstance(label, str) else None,
        is_space=is_space,
        is_shared=content.get(SHARED) is True,
    )

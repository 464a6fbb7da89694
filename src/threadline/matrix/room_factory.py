"""Making rooms: a person's space with its first room, and each room after that.

Nothing is left half done. A room is made before anything is stored about it, under an id of its context that follows
from what asked for it. If the rest cannot be done the bot leaves the room; if the bot is cut off, its next life finds
the room by that id and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from threadline.core.threads import Thread
from threadline.matrix.bindings import Bindings, Book, digest_id
from threadline.matrix.events import ROOM_STATE, SPACE_STATE, RawEvent
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.people import Person, server_of
from threadline.matrix.rooms import IS_SPACE, MATRIX_ID, NEXT_INDEX, Rooms
from threadline.messaging.chat_contexts import ChatContexts
from threadline.settings import MatrixSettings

log = logging.getLogger("threadline.matrix")

_ENCRYPTION: RawEvent = {
    "type": "m.room.encryption",
    "state_key": "",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


class NoSpace(Exception):
    """The person has no space yet in which a room could be made."""


class Made(NamedTuple):
    room_id: str
    label: str
    thread: Thread


class RoomMaker:
    def __init__(
        self,
        book: Book,
        homeserver: Homeserver,
        settings: MatrixSettings,
        rooms: Rooms,
        platform: Callable[[Person], ChatContexts],
    ) -> None:
        self._book = book
        self._homeserver = homeserver
        self._settings = settings
        self._rooms = rooms
        self._platform = platform
        self._making: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One room at a time for each person, so that no label is promised twice."""

    async def bootstrap(self, person: Person) -> Made | None:
        """A space, its first room and the context of that; None if the person has a space already."""
        async with self._making[person.matrix_id]:
            if await self._rooms.space(person) is not None:
                return None
            async with _Undoing(self._homeserver, person) as made:
                return await self._bootstrap(person, digest_id(f"first {person.matrix_id}"), made)

    async def _bootstrap(self, person: Person, chat_id: str, made: list[str]) -> Made:
        mine = {"platform_chat_id": chat_id, MATRIX_ID: person.matrix_id}
        state: list[RawEvent] = [{"type": SPACE_STATE, "state_key": "", "content": mine}]
        space_id = await self._once(person, SPACE_STATE, chat_id, "Threadline", state, space=True)
        made.append(space_id)
        room_id = await self._room_in(space_id, person, "Chat", chat_id, "C1", made)
        thread = await self._platform(person).create_chat_context(chat_id=chat_id)

        async def work(mine: Bindings) -> None:
            counting = {IS_SPACE: True, NEXT_INDEX: 1, MATRIX_ID: person.matrix_id}
            await mine.bind(space_id, thread.id, counting)
            await self._rooms.bind_in(mine, person, room_id, thread.id)

        await self._book.write(person.scope, work)
        for each in (space_id, room_id):
            await self._hand_over(person, each)
        return Made(room_id, "C1", thread)

    async def make(
        self, person: Person, name: str | None, chat_id: str, context: Callable[[str | None], Awaitable[Thread]]
    ) -> Made:
        """A new room in the person's space, with what `context` makes under `chat_id`. NoSpace, HomeserverRefused,
        HomeserverAway and whatever `context` raises: then nothing is left of it."""
        async with self._making[person.matrix_id]:
            space = await self._rooms.space(person)
            if space is None:
                raise NoSpace
            label = f"C{space.metadata[NEXT_INDEX]}"
            async with _Undoing(self._homeserver, person) as made:
                room_id = await self._room_in(space.place, person, name or label, chat_id, label, made)
                thread = await context(chat_id)
                bound = await self._book.write(
                    person.scope, lambda mine: self._rooms.bind_in(mine, person, room_id, thread.id)
                )
            await self._hand_over(person, room_id)
            return Made(room_id, bound.label or label, thread)

    async def _room_in(
        self, space_id: str, person: Person, name: str, chat_id: str, label: str, made: list[str]
    ) -> str:
        via = [server_of(self._settings.user)]
        state: list[RawEvent] = [
            {"type": ROOM_STATE, "state_key": "", "content": self._rooms.room_state(person, chat_id, label)},
            {"type": "m.space.parent", "state_key": space_id, "content": {"via": via, "canonical": True}},
            *([_ENCRYPTION] if self._settings.encrypt else []),
        ]
        room_id = await self._once(person, ROOM_STATE, chat_id, name, state)
        made.append(room_id)
        await self._homeserver.put_state(space_id, "m.space.child", {"via": via}, room_id)
        return room_id

    async def _hand_over(self, person: Person, room_id: str) -> None:
        """Gives the person the same powers as the bot. The room works without, so nothing hangs on it."""
        try:
            powers = await self._homeserver.state(room_id, "m.room.power_levels") or {}
            users = {**powers.get("users", {}), person.matrix_id: 100}
            await self._homeserver.put_state(room_id, "m.room.power_levels", {**powers, "users": users})
        except (HomeserverRefused, HomeserverAway) as exc:
            log.warning("a room was not handed over: %s", exc, extra={"place": room_id})

    async def _once(
        self, person: Person, kind: str, chat_id: str, name: str, state: Sequence[RawEvent], *, space: bool = False
    ) -> str:
        """The room under this id: made now, or found if an earlier attempt may have come so far."""
        is_first = await self._book.begin(person.scope, f"{chat_id}.{kind}")
        found = None if is_first else await self._find(kind, chat_id)
        return found or await self._homeserver.create_room(name, invite=[person.matrix_id], state=state, space=space)

    async def _find(self, kind: str, chat_id: str) -> str | None:
        for room_id in await self._homeserver.joined_rooms():
            told = await self._homeserver.state(room_id, kind)
            if told is not None and told.get("platform_chat_id") == chat_id:
                return room_id
        return None


class _Undoing:
    """Collects the rooms that were made; if the rest cannot be done, takes the invitations back and leaves them."""

    def __init__(self, homeserver: Homeserver, person: Person) -> None:
        self._homeserver = homeserver
        self._person = person
        self._made: list[str] = []

    async def __aenter__(self) -> list[str]:
        return self._made

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, Exception):
            return
        for room_id in self._made:
            try:
                await self._homeserver.abandon(room_id, self._person.matrix_id)
            except (HomeserverRefused, HomeserverAway) as exc:
                log.warning("a room was not left: %s", exc, extra={"place": room_id})

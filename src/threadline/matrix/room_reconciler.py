"""Reconciliation at the start: the store's bindings and the rooms' own state are brought to agree.

The bot's first sync brings the state of every room it is in. A room that says which context it has, and is not bound,
is bound again; a bound room whose state says something else, or nothing, is told. Running it again changes nothing, and
it never makes a room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from threadline.core.channels import Binding
from threadline.core.errors import ThreadlineError
from threadline.matrix.bindings import Bindings, Book
from threadline.matrix.events import ROOM_STATE, SPACE_STATE, Content, RawEvent
from threadline.matrix.homeserver import Batch, Homeserver
from threadline.matrix.people import People, Person
from threadline.matrix.rooms import IS_SPACE, MATRIX_ID, NEXT_INDEX, Rooms
from threadline.messaging.chat_contexts import ChatContexts

log = logging.getLogger("threadline.matrix")


class Reconciling:
    def __init__(
        self,
        book: Book,
        homeserver: Homeserver,
        people: People,
        rooms: Rooms,
        platform: Callable[[Person], ChatContexts],
    ) -> None:
        self._book = book
        self._homeserver = homeserver
        self._people = people
        self._rooms = rooms
        self._platform = platform

    async def reconcile(self, batch: Batch) -> None:
        bound = {each.place: each for each in await self._book.everyones()}
        spaces: list[tuple[str, Content]] = []
        for room in batch.rooms:
            told = self._told(room.state, ROOM_STATE)
            standing = bound.get(room.room_id)
            try:
                if standing is not None and not standing.metadata.get(IS_SPACE):
                    await self._tell(standing, told)
                elif standing is None and told is not None:
                    await self._bind_again(room.room_id, told)
            except (ThreadlineError, KeyError) as exc:
                log.warning("a room was not reconciled: %s", exc, extra={"place": room.room_id})
            if standing is None and (space := self._told(room.state, SPACE_STATE)) is not None:
                spaces.append((room.room_id, space))
        for room_id, told in spaces:
            await self._bind_space_again(room_id, told)

    def _told(self, state: list[RawEvent], kind: str) -> Content | None:
        """What the bot itself wrote into the room's state; nobody else's word counts."""
        mine = (each for each in state if each["type"] == kind and each["sender"] == self._homeserver.user_id)
        return next((each["content"] for each in mine if each["content"].get("platform_chat_id")), None)

    async def _tell(self, standing: Binding, told: Content | None) -> None:
        person = await self._people.find(str(standing.metadata.get(MATRIX_ID)))
        if person is not None and (told or {}).get("platform_chat_id") != standing.thread_id:
            await self._rooms.tell_room(person, standing)

    async def _bind_again(self, room_id: str, told: Content) -> None:
        person = await self._people.find(str(told.get(MATRIX_ID)))
        if person is None:
            return
        thread = await self._platform(person).create_chat_context(chat_id=str(told["platform_chat_id"]))
        label = told.get("label")

        async def work(mine: Bindings) -> None:
            known = label if isinstance(label, str) else None
            await mine.bind(room_id, thread.id, {MATRIX_ID: person.matrix_id}, label=known)

        await self._book.write(person.scope, work)

    async def _bind_space_again(self, room_id: str, told: Content) -> None:
        person = await self._people.find(str(told.get(MATRIX_ID)))
        if person is None or await self._rooms.space(person) is not None:
            return

        async def work(mine: Bindings) -> None:
            rooms = [each for each in await mine.bindings() if each.metadata.get(MATRIX_ID) == person.matrix_id]
            if not rooms:
                return
            taken = [int(each.label[1:]) for each in rooms if each.label and each.label[1:].isdigit()]
            counted = {IS_SPACE: True, NEXT_INDEX: max(taken, default=0) + 1, MATRIX_ID: person.matrix_id}
            await mine.bind(room_id, rooms[0].thread_id, counted)

        await self._book.write(person.scope, work)

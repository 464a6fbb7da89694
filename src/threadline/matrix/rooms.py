"""Rooms: which chat context goes on in which room.

The truth is a binding in the store. Each room also carries it as a state event of the bot's own, so that either can be
rebuilt from the other. A person's space is bound as well; its metadata counts the labels (C1, C2 …). The first who uses
a room has its binding; others who talk there have contexts of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from threadline.core.channels import Binding
from threadline.core.errors import DuplicateId
from threadline.core.ids import new_id
from threadline.matrix.bindings import Bindings, Book, digest_id
from threadline.matrix.events import ROOM_STATE, Content
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.people import Person
from threadline.messaging.chat_contexts import ChatContexts

log = logging.getLogger("threadline.matrix")

LOADED = "loaded"
"""The saved point that this room was last taken to."""
MATRIX_ID = "matrix_id"
NEXT_INDEX = "next_index"
IS_SPACE = "space"


class Rooms:
    def __init__(
        self, book: Book, homeserver: Homeserver, platform: Callable[[Person], ChatContexts], agent_id: str | None
    ) -> None:
        self._book = book
        self._homeserver = homeserver
        self._platform = platform
        self._agent_id = agent_id

    async def binding(self, person: Person, room_id: str) -> Binding | None:
        mine = self._book.of(person.scope)
        return await mine.binding(room_id) or await mine.binding(guest_place(room_id, person))

    async def bindings(self, person: Person) -> list[Binding]:
        """The person's rooms, without spaces."""
        return [each for each in await self._book.of(person.scope).bindings() if not each.metadata.get(IS_SPACE)]

    async def ensure(self, person: Person, room_id: str) -> Binding:
        """The binding; a room without one gets it now, once, however many ask at the same time."""
        bound = await self.binding(person, room_id)
        if bound is not None and await self._platform(person).chat_context(bound.thread_id) is not None:
            return bound
        chat_id = new_id() if bound else digest_id(f"{room_id} {person.matrix_id}")
        try:
            thread = await self._platform(person).create_chat_context(chat_id=chat_id)
        except DuplicateId:
            # The room's first context was deleted: it is not to be had again.
            thread = await self._platform(person).create_chat_context()
        return await self.bind(person, room_id, thread.id)

    async def bind(self, person: Person, room_id: str, thread_id: str) -> Binding:
        """Binds the room to a thread, with a label if it is new, and says so in the room's state. What was noted about
        the thread before is forgotten."""
        try:
            bound = await self._bind(person, room_id, thread_id)
        except DuplicateId:
            return await self._bind(person, guest_place(room_id, person), thread_id)
        await self.tell_room(person, bound)
        return bound

    async def _bind(self, person: Person, place: str, thread_id: str) -> Binding:
        return await self._book.write(person.scope, lambda mine: self.bind_in(mine, person, place, thread_id))

    async def bind_in(self, mine: Bindings, person: Person, place: str, thread_id: str) -> Binding:
        known = await mine.binding(place)
        metadata = {**(known.metadata if known else {}), MATRIX_ID: person.matrix_id}
        if known is None or known.thread_id != thread_id:
            metadata.pop(LOADED, None)
        space = None if known else await space_of(mine, person)
        label = None if space is None else await self._next_label(mine, space)
        return await mine.bind(place, thread_id, metadata, label=label)

    async def _next_label(self, mine: Bindings, space: Binding) -> str:
        index = int(space.metadata[NEXT_INDEX])
        await mine.bind(space.place, space.thread_id, {**space.metadata, NEXT_INDEX: index + 1})
        return f"C{index}"

    async def note(self, person: Person, place: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Changes what is noted in the binding's metadata: a question that waits, what was loaded."""

        async def work(mine: Bindings) -> None:
            bound = await mine.binding(place)
            if bound is not None:
                await mine.bind(place, bound.thread_id, change(bound.metadata))

        await self._book.write(person.scope, work)

    async def space(self, person: Person) -> Binding | None:
        return await space_of(self._book.of(person.scope), person)

    async def tell_room(self, person: Person, bound: Binding) -> None:
        """What stands in the state beside the bot's own keys is kept. A room where the bot may not write state works
        without."""
        try:
            standing = await self._homeserver.state(bound.place, ROOM_STATE) or {}
            told = standing | self.room_state(person, bound.thread_id, bound.label)
            if told != standing:
                await self._homeserver.put_state(bound.place, ROOM_STATE, told)
        except (HomeserverRefused, HomeserverAway) as exc:
            log.info("room state not written: %s", exc, extra={"place": bound.place})

    def room_state(self, person: Person, thread_id: str, label: str | None) -> Content:
        said = {"platform_chat_id": thread_id, "agent": self._agent_id, MATRIX_ID: person.matrix_id, "label": label}
        return {name: value for name, value in said.items() if value is not None}


async def space_of(mine: Bindings, person: Person) -> Binding | None:
    for each in await mine.bindings():
        if each.metadata.get(IS_SPACE) and each.metadata[MATRIX_ID] == person.matrix_id:
            return each
    return None


def guest_place(room_id: str, person: Person) -> str:
    return f"{room_id} {person.matrix_id}"

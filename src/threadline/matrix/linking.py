"""Linking someone on Matrix to the user they are here, and welcoming them with a space of their own."""

from __future__ import annotations

import hashlib
import logging

from threadline.core.threads import system_scope
from threadline.matrix.homeserver import HomeserverAway, HomeserverRefused
from threadline.matrix.making import RoomMaker
from threadline.matrix.people import People, Person
from threadline.matrix.rooms import SURFACE
from threadline.ports import Clock, Store

log = logging.getLogger("threadline.matrix")


class Welcoming:
    def __init__(self, maker: RoomMaker) -> None:
        self._maker = maker

    async def welcome(self, person: Person) -> str:
        """Makes the person's space if they have none; what to tell them."""
        try:
            made = await self._maker.bootstrap(person)
        except (HomeserverRefused, HomeserverAway) as exc:
            log.warning("no space was made: %s", exc, extra={"matrix_id": person.matrix_id})
            return f"You can write here. I could not make you a space: {exc}."
        if made is None:
            return "You can write here; `!help` lists what I do."
        link = f"https://matrix.to/#/{made.room_id}"
        return f"You can write here; `!help` lists what I do. I made you a space, with the room {made.label}: {link}"


class Linking:
    def __init__(self, store: Store, tenant_id: str, clock: Clock, people: People, welcoming: Welcoming) -> None:
        self._house = store.scoped(system_scope(tenant_id))
        self._clock = clock
        self._people = people
        self._welcoming = welcoming

    async def redeem(self, matrix_id: str, code: str) -> str:
        """Uses the code up and links the sender with whoever got it."""
        digest = hashlib.sha256(code.strip().upper().encode()).digest()
        owner_id = await self._house.redeem_link_code(digest, SURFACE, self._clock.now())
        if owner_id is None:
            return "That code is not valid, or not any more. Get a new one."
        await self._house.put_link(SURFACE, matrix_id, owner_id, "verified")
        person = await self._people.find(matrix_id)
        assert person is not None
        return f"You are linked as `{owner_id}`. {await self._welcoming.welcome(person)}"

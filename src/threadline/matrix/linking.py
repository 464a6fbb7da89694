"""Linking someone on Matrix to the user they are here, and welcoming them with a space of their own."""

from __future__ import annotations

import logging

from threadline.core.replying import HOW_TO_LINK_TEXT, LINK_LIMITED_TEXT, LINK_REFUSED_TEXT
from threadline.core.threads import system_scope
from threadline.matrix.homeserver import HomeserverAway, HomeserverRefused
from threadline.matrix.making import RoomMaker
from threadline.matrix.people import People, Person
from threadline.matrix.rooms import SURFACE
from threadline.ports import Store, Transaction
from threadline.settings import MatrixSettings
from threadline.usecases.links import Links, remove_link

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
    def __init__(
        self,
        store: Store,
        tenant_id: str,
        links: Links,
        people: People,
        welcoming: Welcoming,
        settings: MatrixSettings,
    ) -> None:
        self._store = store
        self._house = system_scope(tenant_id)
        self._links = links
        self._people = people
        self._welcoming = welcoming
        self._settings = settings

    async def redeem(self, matrix_id: str, code: str) -> str:
        """Uses the code up and links the sender with whoever got it."""
        redeemed = await self._store.transact(
            self._house, lambda tx: self._links.redeem_in(tx, SURFACE, matrix_id, code)
        )
        person = await self._people.find(matrix_id) if redeemed.result == "linked" else None
        if person is None:
            return LINK_LIMITED_TEXT if redeemed.result == "link_limited" else LINK_REFUSED_TEXT
        return f"This account is linked now, as `{redeemed.owner_id}`. {await self._welcoming.welcome(person)}"

    async def hint(self, matrix_id: str) -> str | None:
        """How to link, once in a while; None if that was said lately."""
        may = await self._store.transact(self._house, lambda tx: self._links.may_hint_in(tx, SURFACE, matrix_id))
        return HOW_TO_LINK_TEXT if may else None

    async def unlink(self, person: Person) -> str:
        if self._settings.auto_link:
            return "Everyone is linked here, by the bot's settings."

        async def work(tx: Transaction) -> bool:
            return await remove_link(tx, SURFACE, person.matrix_id, actor_id=person.scope.user_id)

        await self._store.transact(person.scope, work)
        return "This account is no longer linked. Your chats are kept."

"""Linking someone on Matrix to the user they are here, and welcoming them with a space of their own."""

from __future__ import annotations

import logging

from threadline.core.reply_text import HOW_TO_LINK_TEXT, LINK_LIMITED_TEXT, LINK_REFUSED_TEXT
from threadline.matrix.homeserver import HomeserverAway, HomeserverRefused
from threadline.matrix.people import People, Person
from threadline.matrix.room_factory import RoomMaker
from threadline.ports import Identities
from threadline.settings import MatrixSettings

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
    def __init__(self, identities: Identities, people: People, welcoming: Welcoming, settings: MatrixSettings) -> None:
        self._identities = identities
        self._people = people
        self._welcoming = welcoming
        self._settings = settings

    async def redeem(self, matrix_id: str, code: str) -> str:
        """Uses the code up and links the sender with whoever got it."""
        redeemed = await self._identities.redeem(matrix_id, code)
        person = await self._people.find(matrix_id) if redeemed.result == "linked" else None
        if person is None:
            return LINK_LIMITED_TEXT if redeemed.result == "link_limited" else LINK_REFUSED_TEXT
        return f"This account is linked now, as `{redeemed.owner_id}`. {await self._welcoming.welcome(person)}"

    async def hint(self, matrix_id: str) -> str | None:
        """How to link, once in a while; None if that was said lately."""
        return HOW_TO_LINK_TEXT if await self._identities.may_hint(matrix_id) else None

    async def unlink(self, person: Person) -> str:
        if self._settings.auto_link:
            return "Everyone is linked here, by the bot's settings."
        await self._identities.unlink(person.matrix_id, person.scope)
        return "This account is no longer linked. Your chats are kept."

"""Invitations: the bot joins where someone it may talk to invites it, and makes them a space the first time."""

from __future__ import annotations

import logging

from threadline.core.reply_text import HOW_TO_LINK_TEXT
from threadline.matrix.event_handler import Hearing
from threadline.matrix.events import Said, key_of
from threadline.matrix.homeserver import Homeserver
from threadline.matrix.links import Welcoming
from threadline.matrix.people import People
from threadline.matrix.reply_stream import patiently

log = logging.getLogger("threadline.matrix")


class Inviting:
    def __init__(self, homeserver: Homeserver, people: People, welcoming: Welcoming, hearing: Hearing) -> None:
        self._homeserver = homeserver
        self._people = people
        self._welcoming = welcoming
        self._hearing = hearing

    async def answer(self, room_id: str, inviter: str) -> None:
        if not self._people.may_talk(inviter):
            log.info("an invitation was declined", extra={"place": room_id, "matrix_id": inviter})
            await patiently(lambda: self._homeserver.leave(room_id))
            return
        await patiently(lambda: self._homeserver.join(room_id))
        person = await self._people.find(inviter)
        text = HOW_TO_LINK_TEXT if person is None else await self._welcoming.welcome(person)
        said = Said(room_id, f"invite {room_id}", inviter, "")
        await self._hearing.say(said, text, quotes=False, transaction_id=f"{key_of(said.event_id)}.welcome")

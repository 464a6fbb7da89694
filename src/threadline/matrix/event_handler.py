"""Hearing: what the bot does about one thing that was said, from the event to the answer in the room.

Each event has a key. Once it is answered, that is written under the key in the inbox; heard again before that, every
step of it finds what was done already. The database, the service or the homeserver being away only makes it wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from threadline.core.commands import Command, parse
from threadline.core.errors import InvalidInput, NotFound, Refused, ServiceUnavailable, StoreFailed, TokenRefused
from threadline.matrix import message_format as rendering
from threadline.matrix.bindings import SURFACE, Book
from threadline.matrix.commands import Commands
from threadline.matrix.events import Said, TakenBack, Unreadable, key_of
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.links import Linking
from threadline.matrix.people import People, Person
from threadline.matrix.reply_stream import Telling, patiently
from threadline.matrix.rooms import Rooms
from threadline.messaging.chat_contexts import ChatContexts

log = logging.getLogger("threadline.matrix")

_PAUSES = (0.2, 1.0, 3.0, 10.0)
_UNREADABLE = (
    "I cannot read this message: its key has not reached me. I have asked your client for it. If nothing happens, send "
    "the message again; if that does not help, verify this device or ask in a room without encryption."
)
_BROKEN = "Something went wrong here, and this message was not answered. The operator's log says more."

Rest = Coroutine[Any, Any, None]


class Hearing:
    def __init__(
        self,
        book: Book,
        homeserver: Homeserver,
        people: People,
        rooms: Rooms,
        commands: Commands,
        linking: Linking,
        platform: Callable[[Person], ChatContexts],
        edit_seconds: float,
    ) -> None:
        self._marks = book.marks
        self._homeserver = homeserver
        self._people = people
        self._rooms = rooms
        self._commands = commands
        self._linking = linking
        self._platform = platform
        self._edit_seconds = edit_seconds
        self._speaking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Answers in one place are told one after the other."""

    async def hear(self, heard: Said | TakenBack) -> Rest | None:
        """Does what must be done in order: stores the message, runs the command. What is left, the telling, is
        returned. None if there is nothing to tell."""
        if isinstance(heard, Said):
            return await self._hear(heard)
        await self._take_back(heard)
        return None

    async def _hear(self, said: Said) -> Rest | None:
        if not self._people.may_talk(said.sender) or await self._is_settled(said):
            return None
        person = await self._people.find(said.sender)
        shared = len(self._homeserver.people(said.room_id)) > 1
        if shared and not await self._is_for_me(person, said):
            return None
        if said.instead_of is not None and not await self._is_new_wording(person, said):
            return None
        try:
            if person is None:
                advice = await self._meet(said, shared)
                return None if advice is None else self._reply(said, advice, shared, None)
            if (answer := await self._commands.run(person, said)) is not None:
                return self._reply(said, answer, shared, person)
            return await self._ask(person, said, shared)
        except TokenRefused:
            # That is the bot's own, and nothing to tell people.
            raise
        except (InvalidInput, Refused) as exc:
            return self._reply(said, f"{exc}.", shared, person)

    async def _is_for_me(self, person: Person | None, said: Said) -> bool:
        """Where several people talk, the bot is spoken to by name, by a command, or by an answer to its question."""
        if said.names_me or isinstance(parse(said.text), Command):
            return True
        return person is not None and await self._commands.is_answer(person, said)

    async def _is_new_wording(self, person: Person | None, said: Said) -> bool:
        """Whether an edit says one's own last question in other words. Any other edit changes nothing: what came after
        it was said to the old words. Keys are the sender's own, so nobody edits for another."""
        bound = None if person is None else await self._rooms.binding(person, said.room_id)
        if person is None or bound is None or said.instead_of is None or parse(said.text) is not None:
            return False
        if await self._marks.inbox_row(SURFACE, key_of(said.event_id)) is not None:
            # It was taken for one in an earlier life of the bot, and may have replaced the old words by now.
            return True
        return await self._platform(person).is_last(bound.thread_id, key_of(said.instead_of))

    async def _take_back(self, taken: TakenBack) -> None:
        """A last question that is redacted is taken back with its answer. Earlier ones have been answered to, and
        stay in the history."""
        person = await self._people.find(taken.sender) if self._people.may_talk(taken.sender) else None
        bound = None if person is None else await self._rooms.binding(person, taken.room_id)
        if person is not None and bound is not None:
            key = f"{key_of(taken.event_id)}.back"
            await self._platform(person).take_back(bound.thread_id, key_of(taken.target), key=key)

    async def _meet(self, said: Said, shared: bool) -> str | None:
        """What to say to someone nobody knows: nothing but how to link, and not where others read along."""
        command = parse(said.text)
        if isinstance(command, Command) and command.name == "link" and command.argument:
            return await self._linking.redeem(said.sender, command.argument)
        return None if shared else await self._linking.hint(said.sender)

    async def _ask(self, person: Person, said: Said, shared: bool) -> Rest:
        platform, key = self._platform(person), key_of(said.event_id)
        was_told = await self._marks.inbox_row(SURFACE, key) is not None
        await self._marks.claim_inbox(SURFACE, key, owner_id=person.scope.user_id)
        bound = await self._rooms.ensure(person, said.room_id)
        earlier = None if said.instead_of is None else key_of(said.instead_of)
        try:
            turn = await platform.send_message(bound.thread_id, said.text, key=key, instead_of=earlier)
        except NotFound:
            # It was deleted a moment ago.
            bound = await self._rooms.ensure(person, said.room_id)
            turn = await platform.send_message(bound.thread_id, said.text, key=key)
        telling = Telling(
            self._homeserver, said, turn.id, edit_seconds=self._edit_seconds, quotes=shared, was_told=was_told
        )
        return self._tell(person, said, telling, turn.id, bound.place)

    async def _tell(self, person: Person, said: Said, telling: Telling, turn_id: str, place: str) -> None:
        platform = self._platform(person)
        async with self._speaking[place]:
            try:
                await through_faults(lambda: telling.follow(platform))
                answered = await through_faults(lambda: platform.answered(turn_id))
            except NotFound:
                # Its chat was deleted meanwhile.
                await self._settle(said, "gone", person)
                return
            await self._unless_refused(said, telling.conclude(answered))
        await self._settle(said, "answered", person, turn_id)

    async def hear_unreadable(self, unreadable: Unreadable) -> None:
        """Says what to do, once, and asks for the key."""
        if not self._people.may_talk(unreadable.sender):
            return
        said = Said(unreadable.room_id, unreadable.event_id, unreadable.sender, "")
        await self._homeserver.ask_for_key(unreadable.room_id, unreadable.event)
        await self.say(said, _UNREADABLE, quotes=True, transaction_id=f"{key_of(said.event_id)}.unreadable")

    async def apologise(self, said: Said) -> None:
        """For a message that cannot be answered because of a fault of ours."""
        await self._reply(said, _BROKEN, True, None)

    async def _reply(self, said: Said, text: str, shared: bool, person: Person | None) -> None:
        await self.say(said, text, quotes=shared, transaction_id=f"{key_of(said.event_id)}.said")
        await self._settle(said, "done", person)

    async def say(self, said: Said, text: str, *, quotes: bool, transaction_id: str) -> None:
        """A notice in the room."""
        for number, piece in enumerate(rendering.pieces(text)):
            content = rendering.message(piece, notice=True)
            if quotes or said.thread is not None:
                content = rendering.answering(content, said.event_id, said.thread)
            await self._unless_refused(said, self._send(said.room_id, content, f"{transaction_id}.{number}"))

    async def _send(self, room_id: str, content: dict[str, Any], transaction_id: str) -> None:
        async def send() -> None:
            await self._homeserver.send(room_id, content, transaction_id)

        await patiently(send)

    async def _unless_refused(self, said: Said, telling: Awaitable[None]) -> None:
        try:
            await telling
        except HomeserverRefused as exc:
            # The bot was removed, or may not speak: there is nobody to tell.
            log.warning("an answer was refused: %s", exc, extra={"place": said.room_id})

    async def _is_settled(self, said: Said) -> bool:
        row = await self._marks.inbox_row(SURFACE, key_of(said.event_id))
        return row is not None and row.status != "claimed"

    async def _settle(self, said: Said, status: str, person: Person | None, turn_id: str | None = None) -> None:
        key, owner_id = key_of(said.event_id), person.scope.user_id if person else None

        async def settle() -> None:
            await self._marks.claim_inbox(SURFACE, key, owner_id=owner_id)
            await self._marks.settle_inbox(SURFACE, key, status=status, turn_id=turn_id)

        await through_faults(settle)


async def through_faults(work: Callable[[], Awaitable[Any]]) -> Any:
    """Again and again while the database, the service or the homeserver is away."""
    attempt = 0
    while True:
        try:
            return await work()
        except (StoreFailed, ServiceUnavailable, HomeserverAway) as exc:
            log.warning("waiting: %s", exc)
            await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1

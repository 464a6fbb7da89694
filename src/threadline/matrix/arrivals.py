"""ArrivalCompleter: makes an arrival of an event with what only the homeserver knows.

That is how many people are in the room, what its sender is called there and may do there, and the message that it
replies to or reacts to.
"""

from __future__ import annotations

from threadline.core.commands import Command, parse
from threadline.core.platform_messages import Arrival
from threadline.matrix.events_in import QUESTION, ROOM_STATE, Reaction, Retraction, RoomText, to_arrival, with_quote
from threadline.matrix.homeserver import Homeserver, HomeserverRefused, retry_until_up
from threadline.matrix.room_powers import may_set

# Commands that do more for who may change the room's settings.
_OF_MODERATORS = frozenset(("share", "stop"))


class ArrivalCompleter:
    def __init__(self, homeserver: Homeserver) -> None:
        self._homeserver = homeserver

    async def complete(self, each: RoomText | Retraction | Reaction) -> Arrival | None:
        """None for an event that is between people."""
        if isinstance(each, Reaction):
            found = await self._find_question(each)
            if found is None:
                return None
            each = found
        return to_arrival(
            await self._quote(each),
            is_shared=len(self._homeserver.people(each.room_id)) > 1,
            name=self._homeserver.display_name(each.room_id, each.sender),
            is_by_moderator=await self._is_by_moderator(each),
        )

    async def _find_question(self, reaction: Reaction) -> Reaction | None:
        """The reaction with the approval that its message asks for, if any; None if the bot did not send that message:
        such reactions are between people."""
        try:
            shown = await retry_until_up(lambda: self._homeserver.shown_message(reaction.room_id, reaction.target))
        except HomeserverRefused:
            return None
        if shown.get("sender") != self._homeserver.user_id:
            return None
        token = shown["content"].get(QUESTION)
        return reaction._replace(question=token) if isinstance(token, str) else reaction

    async def _quote(self, each: RoomText | Retraction | Reaction) -> RoomText | Retraction | Reaction:
        """A reply, with what it replies to. Commands and numbers stay as they are."""
        is_text = isinstance(each, RoomText) and parse(each.text) is None and not each.text.strip().isdigit()
        if not isinstance(each, RoomText) or each.answers is None or not is_text:
            return each
        room_id, answers = each.room_id, each.answers
        try:
            quoted = await retry_until_up(lambda: self._homeserver.shown_message(room_id, answers))
        except HomeserverRefused:
            # It was deleted, or it is from before the bot joined.
            return each
        return each._replace(text=with_quote(each.text, quoted["content"]))

    async def _is_by_moderator(self, each: RoomText | Retraction | Reaction) -> bool:
        """Whether the sender may change the room's settings; asked only for the commands that need it."""
        if isinstance(each, Retraction):
            return False
        command = parse(each.text if isinstance(each, RoomText) else each.command, place="shared_room")
        if not isinstance(command, Command) or command.name not in _OF_MODERATORS:
            return False
        try:
            return await retry_until_up(lambda: may_set(self._homeserver, each.room_id, each.sender, ROOM_STATE))
        except HomeserverRefused:
            return False

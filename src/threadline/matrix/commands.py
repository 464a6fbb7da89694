"""Commands in a room: the one grammar of all channels, and what each of them does on Matrix.

A command gives a sentence to say, in Markdown. What it changes, it changes once, however often the same event is heard:
what is made has an id that follows from the event, and what moves is claimed under the event's key. What a person is
asked waits in the binding of the room.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from threadline.core import open_questions as pending_
from threadline.core.channels import Binding
from threadline.core.commands import CommandName, Misused, Unknown, choices_text, help_text, parse
from threadline.core.errors import Conflict, InvalidInput, NotFound, Refused, TokenRefused
from threadline.core.ids import check_title
from threadline.core.open_questions import Agreed, Declined, OpenQuestion, question_in, with_question
from threadline.core.threads import Thread, ThreadChanges
from threadline.matrix.events import Said, key_of
from threadline.matrix.homeserver import Homeserver, HomeserverAway, HomeserverRefused
from threadline.matrix.links import Linking
from threadline.matrix.people import Person
from threadline.matrix.room_factory import Made, NoSpace, RoomMaker
from threadline.matrix.rooms import LOADED, Rooms
from threadline.messaging.chat_contexts import ChatContexts
from threadline.ports import Clock

_LISTED = 30


class Asked:
    """One command, or one answer to a question, of one person in one room."""

    def __init__(self, person: Person, said: Said, bound: Binding, platform: ChatContexts) -> None:
        self.person = person
        self.said = said
        self.bound = bound
        self.platform = platform
        self.key = key_of(said.event_id)

    @property
    def chat_id(self) -> str:
        return self.bound.thread_id


Act: TypeAlias = Callable[[Asked, str | None], Awaitable[str]]


class Commands:
    def __init__(
        self,
        rooms: Rooms,
        maker: RoomMaker,
        homeserver: Homeserver,
        linking: Linking,
        platform: Callable[[Person], ChatContexts],
        clock: Clock,
    ) -> None:
        self._rooms = rooms
        self._maker = maker
        self._homeserver = homeserver
        self._linking = linking
        self._platform = platform
        self._clock = clock
        self._acts: dict[CommandName, Act] = {
            "new": self._new,
            "branch": self._branch,
            "save": self._save,
            "load": self._load,
            "context": self._context,
            "chats": self._chats,
            "open": self._open,
            "rename": self._rename,
            "archive": self._archive,
            "clear": self._ask_to_clear,
            "undo": self._undo,
            "link": self._linked_already,
            "unlink": self._unlink,
            "yes": self._nothing_asked,
            "no": self._nothing_asked,
            "cancel": self._nothing_asked,
            "help": self._help,
            "whoami": self._whoami,
        }

    async def is_answer(self, person: Person, said: Said) -> bool:
        """Whether the text answers what this person was asked in this room."""
        bound = await self._rooms.binding(person, said.room_id)
        return bound is not None and self._answer(bound, person, said) is not None

    def _answer(self, bound: Binding, person: Person, said: Said) -> Agreed | Declined | None:
        waiting = question_in(bound.metadata)
        return pending_.read_answer(waiting, said.text, user_id=person.matrix_id, now=self._clock.now())

    async def run(self, person: Person, said: Said) -> str | None:
        """What to say to a command or to an answer; None if the text is neither."""
        bound = await self._rooms.binding(person, said.room_id)
        answer = None if bound is None else self._answer(bound, person, said)
        command = parse(said.text)
        if answer is None and command is None:
            return None
        if isinstance(command, Misused | Unknown):
            return command.hint
        asked = Asked(person, said, bound or await self._rooms.ensure(person, said.room_id), self._platform(person))
        try:
            if answer is not None:
                return await self._settle(asked, answer)
            assert command is not None
            return await self._acts[command.name](asked, command.argument)
        except TokenRefused:
            raise
        except (InvalidInput, NotFound, Conflict, Refused) as exc:
            return f"That did not work: {exc}."
        except NoSpace:
            return "You have no space yet, so there is no place for a new room. Invite me to a room, and I make one."
        except (HomeserverRefused, HomeserverAway) as exc:
            return f"The homeserver did not do it: {exc}. Nothing was changed."

    async def _settle(self, asked: Asked, answer: Agreed | Declined) -> str:
        """The question goes after the deed, so that a repeat after a crash still finds it."""
        said = "All right, nothing was changed."
        if isinstance(answer, Agreed):
            act = self._clear if answer.does == "clear" else self._acts[answer.does]
            said = await act(asked, answer.argument)
        await self._rooms.note(asked.person, asked.bound.place, lambda noted: with_question(noted, None))
        return said

    async def _ask(self, asked: Asked, question: OpenQuestion) -> None:
        await self._rooms.note(asked.person, asked.bound.place, lambda noted: with_question(noted, question))

    async def _new(self, asked: Asked, name: str | None) -> str:
        name = None if name is None else check_title(name)

        async def context(chat_id: str | None) -> Thread:
            return await asked.platform.create_chat_context(chat_id=chat_id, title=name)

        return _invited(await self._maker.make(asked.person, name, asked.key, context), name)

    async def _branch(self, asked: Asked, name: str | None) -> str:
        name = None if name is None else check_title(name)

        async def context(chat_id: str | None) -> Thread:
            return await asked.platform.branch_chat_context(asked.chat_id, new_chat_id=chat_id, title=name)

        made = await self._maker.make(asked.person, name, asked.key, context)
        return f"{_invited(made, name)} It begins as this chat is now."

    async def _save(self, asked: Asked, name: str | None) -> str:
        given = name or f"{self._clock.now():%Y-%m-%d %H:%M}"
        saved = await asked.platform.save_chat_context(asked.chat_id, given)
        return f"Saved as “{saved.name}”. `!load {saved.name}` goes back to here."

    async def _load(self, asked: Asked, name: str | None) -> str:
        if name is None:
            return await self._offer_saves(asked)
        thread = await asked.platform.load_chat_context(asked.chat_id, name, key=f"{asked.key}.load")
        await self._rooms.note(asked.person, asked.bound.place, lambda noted: {**noted, LOADED: name})
        return f"This chat goes on from “{name}”: {_amount(thread)}."

    async def _offer_saves(self, asked: Asked) -> str:
        names = [saved.name for saved in await asked.platform.saved_points()][:_LISTED]
        if not names:
            return "You have saved nothing yet. `!save [name]` does."
        await self._ask(asked, pending_.ask_to_choose("load", asked.person.matrix_id, self._clock.now(), names))
        return choices_text(names)

    async def _context(self, asked: Asked, _: str | None) -> str:
        thread = await self._thread(asked)
        label = f"{asked.bound.label}, " if asked.bound.label else ""
        loaded = asked.bound.metadata.get(LOADED)
        origin = f", loaded from “{loaded}”" if loaded else ""
        return f"This is {label}context `{thread.id}`: {_amount(thread)}, {thread.token_count} tokens{origin}."

    async def _chats(self, asked: Asked, _: str | None) -> str:
        threads = await asked.platform.chat_contexts(limit=_LISTED)
        labels = {bound.thread_id: bound.label for bound in await self._rooms.bindings(asked.person)}
        lines = [f"- {_named(thread, labels)}, {_amount(thread)}" for thread in threads]
        return "\n".join(["Your chats, the latest first:", "", *lines]) if lines else "You have no chats yet."

    async def _open(self, asked: Asked, wanted: str | None) -> str:
        assert wanted is not None
        found = await self._find_chats(asked, wanted)
        if not found:
            return f"You have no chat “{wanted}”. `!chats` lists them."
        if len(found) > 1:
            choice = pending_.ask_to_choose(
                "open", asked.person.matrix_id, self._clock.now(), [thread.id for thread in found]
            )
            await self._ask(asked, choice)
            return choices_text([f"{thread.title}, {_amount(thread)}" for thread in found])
        thread = found[0]
        for bound in await self._rooms.bindings(asked.person):
            if bound.thread_id == thread.id and bound.place != asked.bound.place:
                return f"That chat goes on in {bound.label or 'another room'} already: {_link(bound.place)}"
        await self._rooms.bind(asked.person, asked.said.room_id, thread.id)
        return f"This room goes on with “{thread.title or thread.id}”: {_amount(thread)}."

    async def _find_chats(self, asked: Asked, wanted: str) -> list[Thread]:
        """By id, by label, or by title."""
        labels = {bound.label: bound.thread_id for bound in await self._rooms.bindings(asked.person) if bound.label}
        chat_id = labels.get(wanted.upper(), wanted)
        try:
            exact = await asked.platform.chat_context(chat_id)
        except InvalidInput:
            exact = None
        if exact is not None:
            return [exact]
        threads = await asked.platform.chat_contexts(limit=100)
        return [thread for thread in threads if (thread.title or "").casefold() == wanted.casefold()][:_LISTED]

    async def _rename(self, asked: Asked, name: str | None) -> str:
        assert name is not None
        thread = await asked.platform.change_chat_context(asked.chat_id, ThreadChanges(title=name))
        try:
            await self._homeserver.put_state(asked.said.room_id, "m.room.name", {"name": thread.title})
        except HomeserverRefused:
            return f"This chat is called “{thread.title}” now. I may not rename the room."
        return f"This chat is called “{thread.title}” now."

    async def _archive(self, asked: Asked, _: str | None) -> str:
        await asked.platform.change_chat_context(asked.chat_id, ThreadChanges(archived=True))
        return f"This chat is off the list. Its history is kept: `!open {asked.chat_id}` finds it from any room."

    async def _ask_to_clear(self, asked: Asked, _: str | None) -> str:
        await self._ask(asked, pending_.ask_to_confirm("clear", asked.person.matrix_id, self._clock.now()))
        return "Start afresh in this room? The old history is kept. `!yes` or `!no`."

    async def _clear(self, asked: Asked, _: str | None) -> str:
        thread = await asked.platform.create_chat_context(chat_id=asked.key)
        await self._rooms.bind(asked.person, asked.said.room_id, thread.id)
        return f"This room starts afresh. `!open {asked.chat_id}` brings the old history back."

    async def _undo(self, asked: Asked, _: str | None) -> str:
        thread = await asked.platform.undo_last(asked.chat_id, key=f"{asked.key}.undo")
        return f"Your last message and its answer are taken back: {_amount(thread)}."

    async def _linked_already(self, asked: Asked, _: str | None) -> str:
        return f"You are linked already, as `{asked.person.scope.user_id}`."

    async def _unlink(self, asked: Asked, _: str | None) -> str:
        return await self._linking.unlink(asked.person)

    async def _nothing_asked(self, asked: Asked, _: str | None) -> str:
        return "There is nothing here that waits for your answer."

    async def _help(self, asked: Asked, _: str | None) -> str:
        return "\n".join(f"- `{line.split(':')[0]}`:{line.partition(':')[2]}" for line in help_text().splitlines())

    async def _whoami(self, asked: Asked, _: str | None) -> str:
        return f"You are `{asked.person.matrix_id}` on Matrix and `{asked.person.scope.user_id}` here."

    async def _thread(self, asked: Asked) -> Thread:
        thread = await asked.platform.chat_context(asked.chat_id)
        if thread is None:
            raise NotFound("chat", asked.chat_id)
        return thread


def _invited(made: Made, name: str | None) -> str:
    called = f"{made.label} “{name}”" if name else made.label
    return f"{called} is ready, you are invited: {_link(made.room_id)}"


def _link(room_id: str) -> str:
    return f"https://matrix.to/#/{room_id.partition(' ')[0]}"


def _named(thread: Thread, labels: dict[str, str | None]) -> str:
    label = labels.get(thread.id)
    title = thread.title or thread.id
    return f"**{label}** {title}" if label else f"{title} (`{thread.id}`)"


def _amount(thread: Thread) -> str:
    return "1 message" if thread.message_count == 1 else f"{thread.message_count} messages"

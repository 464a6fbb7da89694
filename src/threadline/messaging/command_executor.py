"""The command executor: one handler per command, for chats and the terminal.

Handlers work on `CommandThreads`, a user's threads as seen from one place. A chat implements it on the transaction that
claimed the message (`place_threads`), so the command and the claim commit together; the terminal implements it on the
thread gateway, in process or over HTTP. A handler returns a Markdown reply. A handler that fails raises, and the caller
discards what it did.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from threadline.core.commands import (
    SHARED,
    Command,
    CommandName,
    CommandPlace,
    Misused,
    Unknown,
    choices_text,
    help_text,
    parse,
)
from threadline.core.errors import InvalidInput
from threadline.core.open_questions import Agreed, Declined, OpenQuestion, ask_to_choose, ask_to_confirm, read_answer
from threadline.core.threads import SavedPoint

LISTED = 15
"""Entries of a list in a chat: longer ones are hard to read on a phone."""


class ChatInfo(Protocol):
    """What handlers read of a thread; the library's and the client's threads both have it."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str | None: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def message_count(self) -> int: ...
    @property
    def token_count(self) -> int: ...
    @property
    def updated_at(self) -> dt.datetime: ...


class CurrentChat(NamedTuple):
    """The thread of this place. `label` is the place's short name where places have one; `loaded` is the saved point
    that was loaded last."""

    thread: ChatInfo
    label: str | None = None
    loaded: str | None = None


class CommandThreads(Protocol):
    """One user's threads as seen from one place. NotFound and InvalidInput carry texts for the user."""

    async def current(self) -> CurrentChat:
        """The thread of this place; created where a place always has one, else InvalidInput."""
        ...

    async def create(self, title: str | None) -> ChatInfo: ...

    async def branch(self, title: str | None) -> ChatInfo:
        """A new thread that begins with the current one's history."""
        ...

    async def open_place(self, thread: ChatInfo, reply: str) -> str | None:
        """Makes a new thread reachable: continues it here, or opens a place of its own for it. The reply to send now;
        None if one is sent once the place is open."""
        ...

    async def continue_here(self, thread: ChatInfo) -> None:
        """Binds this place to the thread. Conflict, with a text for the user, where another place has it alone."""
        ...

    async def find(self, name: str) -> Sequence[ChatInfo]:
        """Threads with this id, state key, label or title. More than one only for equal titles."""
        ...

    async def recent(self, limit: int) -> Sequence[CurrentChat]:
        """The latest threads, without archived ones."""
        ...

    async def saved_points(self) -> Sequence[SavedPoint]: ...

    async def save(self, name: str) -> SavedPoint: ...

    async def load(self, name: str) -> ChatInfo: ...

    async def undo(self) -> ChatInfo: ...

    async def rename(self, title: str) -> ChatInfo: ...

    async def archive(self) -> None: ...

    async def home(self) -> ChatInfo | None:
        """The user's home thread: the one that their private chats on platforms continue."""
        ...

    async def make_home(self) -> ChatInfo:
        """Makes the thread of this place the home thread. Conflict if others read a place that continues it."""
        ...

    async def ask(self, question: OpenQuestion | None) -> None:
        """Keeps the question open in this place, in place of any other; None closes it."""
        ...


class CommandCall(NamedTuple):
    """One command to execute."""

    threads: CommandThreads
    user_id: str
    now: dt.datetime
    place: CommandPlace = "private"
    prefix: str = "!"
    argument: str | None = None
    is_confirmed: bool = False

    def spell(self, command: str) -> str:
        return f"`{self.prefix}{command}`"

    @property
    def is_read_by_others(self) -> bool:
        """Names from the user's other chats must not be shown: a title is often the first private message."""
        return self.place in SHARED


Handler: TypeAlias = Callable[[CommandCall], Awaitable[str | None]]


class Hint(NamedTuple):
    """Nothing to execute: reply with this text."""

    text: str


def interpret(
    text: str,
    question: OpenQuestion | None,
    *,
    user_id: str,
    now: dt.datetime,
    place: CommandPlace = "private",
    prefix: str = "!",
) -> Command | Hint | None:
    """The command in a text, or the one that it answers a question with; None if the text is for the agent."""
    match read_answer(question, text, user_id=user_id, now=now):
        case Declined():
            return Command("cancel")
        case Agreed(does, argument):
            return Command(does, argument, is_confirmed=True)
    match parse(text, place=place, prefix=prefix):
        case Command("yes" | "no" | "cancel"):
            return Hint("There is no open question here.")
        case Command() as command:
            return command
        case Misused(_, hint) | Unknown(_, hint):
            return Hint(hint)
    return None


class CommandExecutor:
    """`extra` adds or replaces handlers: what only one surface can do."""

    def __init__(self, extra: Mapping[CommandName, Handler] | None = None) -> None:
        self._handlers = {**HANDLERS, **(extra or {})}

    @property
    def names(self) -> frozenset[CommandName]:
        return frozenset(self._handlers)

    async def execute(self, command: Command, call: CommandCall) -> str | None:
        """The reply; None if it follows later. InvalidInput, NotFound and Conflict say why the command failed."""
        handler = self._handlers[command.name]
        return await handler(call._replace(argument=command.argument, is_confirmed=command.is_confirmed))


async def start_chat(call: CommandCall) -> str | None:
    thread = await call.threads.create(call.argument)
    reply = f"Started a new chat{name_of(thread)}. The previous one is kept: {call.spell('chats')} lists all."
    return await call.threads.open_place(thread, reply)


async def branch_chat(call: CommandCall) -> str | None:
    thread = await call.threads.branch(call.argument)
    # Without a name of its own, a branch may have the title of the chat that it began in.
    name = "" if call.is_read_by_others and call.argument is None else name_of(thread)
    reply = f"Started a branch{name}: {count_of(thread)}. The original chat is unchanged."
    return await call.threads.open_place(thread, reply)


async def save_point(call: CommandCall) -> str:
    saved = await call.threads.save(call.argument or call.now.strftime("%Y-%m-%d %H:%M"))
    return f"Saved as “{escape(saved.name)}”. Load it with {call.spell(f'load {saved.name}')}."


async def load_point(call: CommandCall) -> str:
    if call.argument is None:
        if call.is_read_by_others:
            loads = f"{call.spell('load NAME')} loads one."
            return f"Others read this place, so your saved points are not listed here. {loads}"
        names = [saved.name for saved in await call.threads.saved_points()][:LISTED]
        if not names:
            return f"Nothing is saved yet. {call.spell('save NAME')} saves this point."
        await call.threads.ask(ask_to_choose("load", call.user_id, call.now, names))
        return choices_text([escape(name) for name in names])
    thread = await call.threads.load(call.argument)
    return f"Loaded “{escape(call.argument)}”: {count_of(thread)}."


async def show_chat(call: CommandCall) -> str:
    thread, label, loaded = await call.threads.current()
    title = "" if call.is_read_by_others else name_of(thread)
    lines = [f"{f'{label}, ' if label else ''}chat `{thread.id}`{title}"]
    lines[0] = lines[0][0].upper() + lines[0][1:]
    # Many agents report no usage: then 0 would be wrong.
    tokens = f"{thread.token_count} tokens" if thread.token_count else "tokens not reported by the agent"
    lines.append(f"{count_of(thread)}, {tokens}")
    if thread.agent_id is not None:
        lines.append(f"Agent: {escape(thread.agent_id)}")
    if loaded is not None:
        lines.append(f"Loaded: “{escape(loaded)}”")
    return "\n".join(lines)


async def list_chats(call: CommandCall) -> str:
    if call.is_read_by_others:
        return (
            "Others read this place, so your chats are not listed here. "
            f"Send {call.spell('chats')} in a private chat with me."
        )
    here = await _current_id(call)
    chats = await call.threads.recent(LISTED)
    if not chats:
        return "You have no chats yet."
    await call.threads.ask(ask_to_choose("open", call.user_id, call.now, [each.thread.id for each in chats]))
    return choices_text([_entry(call, each, is_here=each.thread.id == here) for each in chats])


async def _current_id(call: CommandCall) -> str | None:
    try:
        return (await call.threads.current()).thread.id
    except InvalidInput:  # the terminal has no thread before the first message
        return None


def _entry(call: CommandCall, chat: CurrentChat, *, is_here: bool) -> str:
    label = f"**{chat.label}** " if chat.label else ""
    notes = [count_of(chat.thread)]
    if call.place == "terminal":
        # The terminal is wide, and `threadline threads` takes ids; on a phone they would only hide the titles.
        notes += [f"{chat.thread.updated_at.astimezone():%Y-%m-%d %H:%M}", f"`{chat.thread.id}`"]
    if is_here:
        notes.append("here")
    return f"{label}{escape(chat.thread.title or 'Untitled')} ({', '.join(notes)})"


async def open_chat(call: CommandCall) -> str:
    assert call.argument is not None
    found = await call.threads.find(call.argument)
    if not found:
        raise InvalidInput(f"you have no chat “{call.argument}”: {call.spell('chats')} lists your chats")
    if len(found) > 1 and call.is_read_by_others:
        raise InvalidInput(
            f"you have {len(found)} chats with that title: use the id of one, which {call.spell('context')} shows in it"
        )
    if len(found) > 1:
        await call.threads.ask(ask_to_choose("open", call.user_id, call.now, [each.id for each in found[:LISTED]]))
        return choices_text([_entry(call, CurrentChat(each), is_here=False) for each in found[:LISTED]])
    thread = found[0]
    await call.threads.continue_here(thread)
    if call.is_read_by_others:
        return f"Opened here: {count_of(thread)}. From now on, replies here can draw on them."
    return f"Opened **{escape(thread.title or thread.id)}**: {count_of(thread)}."


async def rename_chat(call: CommandCall) -> str:
    assert call.argument is not None
    thread = await call.threads.rename(call.argument)
    return f"Renamed to **{escape(thread.title or '')}**."


async def archive_chat(call: CommandCall) -> str:
    thread = (await call.threads.current()).thread
    await call.threads.archive()
    return f"Archived. You can still write here; {call.spell(f'open {thread.id}')} opens it anywhere."


async def home_chat(call: CommandCall) -> str:
    if call.argument is not None:
        return await _make_home(call)
    # First: a private chat that has no thread yet gets the home thread.
    current_id = await _current_id(call)
    home = await call.threads.home()
    here = f"{call.spell('home here')} makes it this chat."
    if home is None:
        return f"You have no home chat yet. {here}"
    if home.id == current_id:
        return f"This is your home chat: private chats on platforms continue it ({count_of(home)})."
    if call.is_read_by_others:
        return f"Your home chat is another one. {call.spell('home')} in a private chat with me shows it."
    opens = f"{call.spell(f'open {home.id}')} continues it here."
    title = escape(home.title or home.id)
    return f"Your private chats on platforms continue **{title}** ({count_of(home)}). {opens} {here}"


async def _make_home(call: CommandCall) -> str:
    if call.argument != "here":
        raise InvalidInput(f"{call.spell('home')} takes nothing, or {call.spell('home here')}, got “{call.argument}”")
    if call.is_read_by_others:
        branch = call.spell("branch")
        raise InvalidInput(f"others read this place, and what you write in private would be here: {branch} it first")
    thread = await call.threads.make_home()
    return f"This is your home chat now: private chats on platforms continue it ({count_of(thread)})."


async def clear_chat(call: CommandCall) -> str:
    if not call.is_confirmed:
        await call.threads.ask(ask_to_confirm("clear", call.user_id, call.now))
        return f"Start with an empty history here? The old one is kept. {call.spell('yes')} or {call.spell('no')}."
    old = (await call.threads.current()).thread
    await call.threads.continue_here(await call.threads.create(None))
    return f"Cleared. {call.spell(f'open {old.id}')} brings the old chat back."


async def undo_message(call: CommandCall) -> str:
    return f"Removed your last message and its reply: {count_of(await call.threads.undo())} left."


async def cancel_question(call: CommandCall) -> str:
    await call.threads.ask(None)
    return "Cancelled. Nothing was changed."


async def show_help(call: CommandCall) -> str:
    lines = (line.partition(": ") for line in help_text(call.place, call.prefix).splitlines())
    return "\n".join(f"- `{usage}`: {text}" for usage, _, text in lines)


HANDLERS: Mapping[CommandName, Handler] = {
    "new": start_chat,
    "branch": branch_chat,
    "save": save_point,
    "load": load_point,
    "context": show_chat,
    "chats": list_chats,
    "open": open_chat,
    "home": home_chat,
    "rename": rename_chat,
    "archive": archive_chat,
    "clear": clear_chat,
    "undo": undo_message,
    "cancel": cancel_question,
    "help": show_help,
}


def name_of(thread: ChatInfo) -> str:
    return f": **{escape(thread.title)}**" if thread.title else ""


def count_of(thread: ChatInfo) -> str:
    return "1 message" if thread.message_count == 1 else f"{thread.message_count} messages"


def escape(name: str) -> str:
    """A name that a person chose, with Markdown's characters escaped."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>~|" else char for char in name)

"""ChatCommands: what in-chat commands do, inside the transaction that claimed the message they came in.

The grammar is `core.commands`; what is asked back and not answered yet is `core.pending`, kept with the place's
binding. Each command answers with a Markdown text. A command that cannot be done raises, and nothing of it is kept.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from threadline.core import open_questions as pending
from threadline.core.commands import Command, CommandName, Misused, Unknown, choices_text, help_text, parse
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.open_questions import Declined, Pending
from threadline.core.sealing import Sealer
from threadline.core.threads import NewThread, Thread, ThreadChanges
from threadline.core.turns import Surface
from threadline.messaging.bindings import CurrentThread, home_key, new_thread_for, stand
from threadline.messaging.links import remove_link
from threadline.ports import Transaction
from threadline.threads.field_checks import admit_changes, admit_name, admit_thread, admit_title

_LISTED = 15
_LOADED = "loaded"
_NOTHING_ASKED = "There is nothing to answer at the moment."
_LEFT = "All right, nothing was changed."
_ALREADY_LINKED = "This account is linked already. `!unlink` ends that, and then a code links it anew."


class CommandContext(NamedTuple):
    """Who commands, from where."""

    platform: Surface
    place: str
    sender: str
    agent_id: str
    now: dt.datetime
    shared: bool
    """Others read along there."""


class Act(NamedTuple):
    """A command to be done, or an answer to what was asked."""

    does: CommandName
    argument: str | None = None


class Say(NamedTuple):
    """Nothing is to be done: only this is to be said."""

    text: str


Verb: TypeAlias = Callable[[Transaction, CommandContext, CurrentThread, str | None], Awaitable[str]]


def understood(text: str, asked: Pending | None, *, user_id: str, now: dt.datetime) -> Act | Say | None:
    """What a text commands; None if it is for the agent."""
    match pending.answer(asked, text, user_id=user_id, now=now):
        case Declined():
            return Act("cancel")
        case pending.Agreed(does, argument):
            return Act("yes" if does == "clear" else does, argument)
    match parse(text):
        case Command("yes" | "no" | "cancel"):
            return Say(_NOTHING_ASKED)
        case Command(name, argument):
            return Act(name, argument)
        case Misused(_, hint) | Unknown(_, hint):
            return Say(hint)
    return None


class ChatCommands:
    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._verbs: dict[CommandName, Verb] = {
            "new": self._new,
            "branch": self._branch,
            "save": self._save,
            "load": self._load,
            "context": self._context,
            "chats": self._chats,
            "open": self._open,
            "rename": self._rename,
            "archive": self._archive,
            "clear": self._clear,
            "yes": self._cleared,
            "undo": self._undo,
            "link": self._link,
            "unlink": self._unlink,
            "cancel": self._cancel,
            "help": self._help,
            "whoami": self._whoami,
        }

    async def act(self, tx: Transaction, asker: CommandContext, act: Act) -> str:
        """Does it and says so. InvalidInput, NotFound and Conflict say why not, in words for the user."""
        standing = await stand(tx, asker.platform, asker.place, asker.agent_id, shared=asker.shared)
        return await self._verbs[act.does](tx, asker, standing, act.argument)

    async def _go_on(
        self,
        tx: Transaction,
        asker: CommandContext,
        standing: CurrentThread,
        thread: Thread,
        *,
        loaded: str | None = None,
    ) -> None:
        """This place goes on with that thread; what was asked here is no longer."""
        kept = {
            key: value for key, value in pending.with_pending(standing.binding.metadata, None).items() if key != _LOADED
        }
        metadata = kept if loaded is None else {**kept, _LOADED: loaded}
        await tx.bind(asker.platform, asker.place, thread.id, metadata=self._sealer.json(metadata))

    async def _ask(
        self, tx: Transaction, asker: CommandContext, standing: CurrentThread, question: Pending | None
    ) -> None:
        metadata = pending.with_pending(standing.binding.metadata, question)
        await tx.bind(asker.platform, asker.place, standing.thread.id, metadata=self._sealer.json(metadata))

    async def _new(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, name: str | None) -> str:
        title = None if name is None else admit_title(self._sealer, name)
        thread = await new_thread_for(tx, asker.agent_id, title)
        await self._go_on(tx, asker, standing, thread)
        return f"A new chat begins here{_named(title)}. The one before is kept: `!chats` lists them."

    async def _branch(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, name: str | None) -> str:
        wanted = admit_thread(self._sealer, NewThread(title=name))
        thread = await tx.branch(standing.thread.id, wanted)
        await self._go_on(tx, asker, standing, thread)
        return f"A new chat begins here as this one was{_named(thread.title)}. The one before goes on as it is."

    async def _save(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, name: str | None) -> str:
        wanted = name or asker.now.strftime("%Y-%m-%d %H:%M")
        saved = await tx.save(standing.thread.id, admit_name(self._sealer, "saved point", wanted))
        return f"Saved as **{_shown(saved.name)}**. `!load {saved.name}` goes on from here."

    async def _load(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, name: str | None) -> str:
        if name is None:
            return await self._offer_saved(tx, asker, standing)
        wanted = admit_name(self._sealer, "saved point", name)
        if await tx.saved_point(wanted) is None:
            raise NotFound("saved point", wanted)
        thread = standing.thread
        if await _is_shared(tx, asker, standing):
            # Other places stand on this thread, and they have not asked to go anywhere.
            thread = await new_thread_for(tx, asker.agent_id, None)
        thread = await tx.load(thread.id, wanted)
        await self._go_on(tx, asker, standing, thread, loaded=wanted)
        return f"This chat goes on from **{_shown(wanted)}**: {_counted(thread)}."

    async def _offer_saved(self, tx: Transaction, asker: CommandContext, standing: CurrentThread) -> str:
        names = [saved.name for saved in await tx.saved_points()][:_LISTED]
        if not names:
            return "Nothing is saved yet. `!save NAME` gives this point a name."
        await self._ask(tx, asker, standing, pending.offer("load", tx.scope.user_id, asker.now, names))
        return choices_text([_shown(name) for name in names])

    async def _context(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        thread, loaded = standing.thread, standing.binding.metadata.get(_LOADED)
        lines = [f"Chat `{thread.id}`{_named(thread.title)}", f"{_counted(thread)}, {thread.token_count} tokens"]
        if thread.agent_id is not None:
            lines.append(f"Agent: {_shown(thread.agent_id)}")
        if isinstance(loaded, str):
            lines.append(f"Loaded: {_shown(loaded)}")
        return "\n".join(lines)

    async def _chats(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        page = await tx.threads(limit=_LISTED)
        await self._ask(
            tx, asker, standing, pending.offer("open", tx.scope.user_id, asker.now, [each.id for each in page.items])
        )
        here = standing.thread.id
        return choices_text(
            [
                f"{_shown(each.title or 'Untitled')} ({_counted(each)}){' (here)' if each.id == here else ''}"
                for each in page.items
            ]
        )

    async def _open(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, wanted: str | None) -> str:
        assert wanted is not None
        thread = await _find(tx, wanted)
        await self._go_on(tx, asker, standing, thread)
        return f"This chat goes on here{_named(thread.title)}: {_counted(thread)}."

    async def _rename(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, name: str | None) -> str:
        changes = admit_changes(self._sealer, ThreadChanges(title=name))
        thread = await tx.update_thread(standing.thread.id, changes)
        return f"This chat is called **{_shown(thread.title or '')}** now."

    async def _archive(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        await tx.update_thread(standing.thread.id, ThreadChanges(archived=True))
        return "This chat is off the list. Its history is kept, and you can go on writing here."

    async def _clear(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        await self._ask(tx, asker, standing, pending.ask("clear", tx.scope.user_id, asker.now))
        return "Begin afresh here? The old history is kept. `!yes` does it, `!no` does not."

    async def _cleared(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        await self._go_on(tx, asker, standing, await new_thread_for(tx, asker.agent_id, None))
        return f"A fresh start. The old chat is kept: `!open {standing.thread.id}` goes back to it."

    async def _undo(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        thread = await tx.undo(standing.thread.id)
        return f"Your last message and its answer are taken back: {_counted(thread)}."

    async def _link(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        return _ALREADY_LINKED

    async def _unlink(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        await remove_link(tx, asker.platform, asker.sender, actor_id=tx.scope.user_id)
        return "This account is no longer linked. Your chats are kept."

    async def _cancel(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        await self._ask(tx, asker, standing, None)
        return _LEFT

    async def _help(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        return "\n".join(f"- {line}" for line in help_text().splitlines())

    async def _whoami(self, tx: Transaction, asker: CommandContext, standing: CurrentThread, _: str | None) -> str:
        return f"You are `{tx.scope.user_id}` ({tx.scope.role}) in `{tx.scope.tenant_id}`, linked as `{asker.sender}`."


async def _is_shared(tx: Transaction, asker: CommandContext, standing: CurrentThread) -> bool:
    if standing.thread.state_key == home_key(asker.agent_id):
        return True
    return len(await tx.bindings(thread_id=standing.thread.id)) > 1


async def _find(tx: Transaction, wanted: str) -> Thread:
    """A thread by its id, its state key or, among the latest, its title. NotFound; InvalidInput if several fit."""
    found = await tx.thread(wanted) or await tx.thread_by_key(wanted)
    if found is not None:
        return found
    latest = (await tx.threads(limit=100, archived=None)).items
    named = _called(latest, wanted)
    if len(named) > 1:
        raise InvalidInput(f"several chats are called {wanted!r}: `!chats` lists them with numbers")
    if not named:
        raise NotFound("chat", wanted)
    return named[0]


def _called(threads: Sequence[Thread], wanted: str) -> list[Thread]:
    return [thread for thread in threads if (thread.title or "").casefold() == wanted.casefold()]


def _named(title: str | None) -> str:
    return f": **{_shown(title)}**" if title else ""


def _counted(thread: Thread) -> str:
    return "1 message" if thread.message_count == 1 else f"{thread.message_count} messages"


def _shown(name: str) -> str:
    # A name is a person's, and must not be read as Markdown.
    return "".join(f"\\{char}" if char in "\\`*_[]<>~|" else char for char in name)

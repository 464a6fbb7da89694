"""Commands in a chat: `CommandThreads` on the transaction that claimed the message, and the account commands.

The place's binding holds what the commands need: the thread, the open question, the saved point that was loaded.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from threadline.core.channels import Agent as AgentRow
from threadline.core.channels import Binding
from threadline.core.commands import CommandName, CommandPlace
from threadline.core.errors import NotFound
from threadline.core.open_questions import OpenQuestion, with_question
from threadline.core.sealing import Sealer
from threadline.core.threads import NewThread, SavedPoint, Thread, ThreadChanges
from threadline.core.turns import Surface, Turn
from threadline.messaging.bindings import CurrentThread, current_thread, new_thread_for
from threadline.messaging.command_executor import (
    ChatInfo,
    CommandCall,
    CommandExecutor,
    CurrentChat,
    Handler,
    escape,
)
from threadline.messaging.home_threads import HomeThreads
from threadline.messaging.links import remove_link
from threadline.ports import Transaction
from threadline.threads.field_checks import admit_changes, admit_name, admit_thread, admit_title
from threadline.turns.meters import allowed_models, check_model, choose_model

_LOADED = "loaded"
# Threads among which a chat is looked for by its number or title: as many as a person can tell apart.
_SEARCHED = 100
"""How many of the latest threads are searched for a title."""


FindConfigured: TypeAlias = Callable[[str], AgentRow | None]
"""The row of an agent that the settings define; None for any other."""


class CommandContext(NamedTuple):
    """The sender of a command and the place it came from, as bindings spell it."""

    platform: Surface
    place: str
    sender: str
    agent_id: str
    now: dt.datetime
    is_shared: bool
    """Others read this place as well."""
    has_rooms: bool = False
    """The bot opens rooms on this platform."""
    author_id: str | None = None
    """Who gives the command, in a room whose thread is shared; `sender` is its owner's account."""
    is_by_moderator: bool = False

    @property
    def kind(self) -> CommandPlace:
        if self.has_rooms:
            return "shared_room" if self.is_shared else "room"
        return "shared" if self.is_shared else "private"


class PlaceThreads:
    """`CommandThreads` for one command in one place."""

    def __init__(self, tx: Transaction, sealer: Sealer, context: CommandContext, homes: HomeThreads) -> None:
        self._tx = tx
        self._homes = homes
        self._sealer = sealer.for_tenant(tx.scope.tenant_id)
        self._context = context
        self._current: CurrentThread | None = None
        self.stopped: list[str] = []
        """Turns that were asked to stop."""

    async def current(self) -> CurrentChat:
        binding, thread = await self.here()
        loaded = binding.metadata.get(_LOADED)
        return CurrentChat(thread, binding.label, loaded if isinstance(loaded, str) else None)

    async def here(self) -> CurrentThread:
        if self._current is None:
            platform, place, _, agent_id, _, is_shared, *_ = self._context
            self._current = await current_thread(self._tx, platform, place, agent_id, self._homes, is_shared=is_shared)
        return self._current

    async def create(self, title: str | None) -> Thread:
        clean = None if title is None else admit_title(self._sealer, title)
        return await new_thread_for(self._tx, self._context.agent_id, clean)

    async def branch(self, title: str | None) -> Thread:
        source = (await self.here()).thread
        return await self._tx.branch(source.id, admit_thread(self._sealer, NewThread(title=title)))

    async def open_place(self, thread: ChatInfo, reply: str) -> str | None:
        await self.continue_here(thread)
        return reply

    async def continue_here(self, thread: ChatInfo, *, loaded: str | None = None) -> None:
        binding = (await self.here()).binding
        metadata = {key: value for key, value in with_question(binding.metadata, None).items() if key != _LOADED}
        if loaded is not None:
            metadata[_LOADED] = loaded
        await self.bind(thread.id, metadata)

    async def bind(self, thread_id: str, metadata: dict[str, Any]) -> Binding:
        """Binds this place, with this metadata."""
        clean = self._sealer.json(metadata)
        binding = await self._tx.bind(self._context.platform, self._context.place, thread_id, metadata=clean)
        # What `here` read has changed.
        self._current = None
        return binding

    async def find(self, name: str) -> Sequence[Thread]:
        found = await self._tx.thread(name) or await self._tx.thread_by_key(name)
        if found is not None:
            return [found]
        latest = (await self._tx.threads(limit=_SEARCHED, archived=None)).items
        return [thread for thread in latest if (thread.title or "").casefold() == name.casefold()]

    async def recent(self, limit: int) -> Sequence[CurrentChat]:
        return [CurrentChat(thread) for thread in (await self._tx.threads(limit=limit)).items]

    async def saved_points(self) -> Sequence[SavedPoint]:
        return await self._tx.saved_points()

    async def save(self, name: str) -> SavedPoint:
        thread = (await self.here()).thread
        return await self._tx.save(thread.id, admit_name(self._sealer, "saved point", name))

    async def load(self, name: str) -> Thread:
        wanted = admit_name(self._sealer, "saved point", name)
        if await self._tx.saved_point(wanted) is None:
            raise NotFound("saved point", wanted)
        thread = (await self.here()).thread
        if await self.is_used_elsewhere(thread):
            # Other places continue this thread: only this one moves to the saved point.
            thread = await new_thread_for(self._tx, self._context.agent_id, None)
        thread = await self._tx.load(thread.id, wanted)
        await self.continue_here(thread, loaded=wanted)
        return thread

    async def is_used_elsewhere(self, thread: Thread) -> bool:
        home = await self._homes.find(self._tx, self._context.agent_id)
        if home is not None and home.id == thread.id:
            return True
        return len(await self._tx.bindings(thread_id=thread.id)) > 1

    async def undo(self) -> Thread:
        return await self._tx.undo((await self.here()).thread.id)

    async def stop(self) -> int:
        """Asks the active turns of this place's thread to stop. How many there are."""
        for turn in await self._tx.active_turns((await self.here()).thread.id):
            if self._may_stop(turn) and await self._tx.request_stop(turn.id):
                self.stopped.append(turn.id)
        return len(self.stopped)

    def _may_stop(self, turn: Turn) -> bool:
        """In a shared room: the author of the question, the owner of the thread, and who moderates the room."""
        author_id = self._context.author_id
        return author_id in (None, self._tx.scope.user_id, turn.asked_by) or self._context.is_by_moderator

    async def home(self) -> Thread | None:
        return await self._homes.find(self._tx, self._context.agent_id)

    async def make_home(self) -> Thread:
        thread = await self._homes.choose(self._tx, (await self.here()).thread.id)
        self._current = None
        return thread

    async def rename(self, title: str) -> Thread:
        changes = admit_changes(self._sealer, ThreadChanges(title=title))
        return await self._tx.update_thread((await self.here()).thread.id, changes)

    async def archive(self) -> None:
        await self._tx.update_thread((await self.here()).thread.id, ThreadChanges(archived=True))

    async def ask(self, question: OpenQuestion | None) -> None:
        binding, thread = await self.here()
        await self.bind(thread.id, with_question(binding.metadata, question))

    async def agent_id(self) -> str:
        return (await self.here()).thread.agent_id or self._context.agent_id

    async def set_model(self, model: str) -> Thread:
        changes = admit_changes(self._sealer, ThreadChanges(model=model))
        return await self._tx.update_thread((await self.here()).thread.id, changes)


def chat_executor(
    tx: Transaction,
    context: CommandContext,
    threads: PlaceThreads,
    configured: FindConfigured,
    extra: Mapping[CommandName, Handler],
) -> CommandExecutor:
    """The executor with the commands about the sender's account, about the agent's model, and `extra` ones."""
    scope, sender = tx.scope, context.sender

    async def model(call: CommandCall) -> str:
        agent_id = await threads.agent_id()
        row = await tx.agent(agent_id) or configured(agent_id)
        if call.argument is not None:
            check_model(row, call.argument)
            changed = await threads.set_model(call.argument)
            return f"Using the model `{escape(changed.model or '')}` in this chat from now on."
        chosen = choose_model(None, (await threads.here()).thread, row, agent_id)
        offered = ", ".join(f"`{escape(each)}`" for each in allowed_models(row))
        choice = f" You can choose {offered}." if offered else ""
        return f"Agent `{escape(agent_id)}`, model `{escape(chosen or '(default)')}`.{choice}"

    async def link(call: CommandCall) -> str:
        return f"This account is already linked. {call.spell('unlink')} unlinks it; then you can use another code."

    async def unlink(call: CommandCall) -> str:
        await remove_link(tx, context.platform, sender, actor_id=scope.user_id)
        return "This account is no longer linked. Your chats are kept."

    async def whoami(call: CommandCall) -> str:
        return f"You are `{scope.user_id}` ({scope.role}) in `{scope.tenant_id}`, linked as `{sender}`."

    async def stop(call: CommandCall) -> str:
        return "Stopped." if await threads.stop() else "No reply is running here."

    handlers: dict[CommandName, Handler] = {
        "link": link,
        "unlink": unlink,
        "whoami": whoami,
        "model": model,
        "stop": stop,
    }
    return CommandExecutor({**handlers, **extra})

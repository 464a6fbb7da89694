"""Rooms: places of a platform on which the bot opens rooms of its own (Matrix).

Each room has a thread of its own, and no two rooms share one. A user's rooms are in a space and have labels (C1, C2 …);
the space's binding counts them. Opening a room is a side effect outside the database: the command creates the thread,
reserves the label and enqueues a `RoomRequest` in one transaction. When the bot reports the room, the thread is bound
to it; when the homeserver refuses, thread and label are given back. Either way the user is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from threadline.core.channels import Binding, OutboxRow
from threadline.core.commands import CommandName
from threadline.core.errors import Conflict, InvalidInput, NotFound
from threadline.core.platform_messages import Opened
from threadline.core.room_messages import RoomBinding, RoomMessage, RoomRequest, encode
from threadline.core.sealing import Sealer
from threadline.core.threads import Thread, ThreadChanges
from threadline.core.turns import Surface
from threadline.messaging.bindings import CurrentThread, bound_place, new_thread_for
from threadline.messaging.command_executor import ChatInfo, CommandCall, CurrentChat, Handler, escape
from threadline.messaging.home_threads import HomeThreads, is_home
from threadline.messaging.place_threads import CommandContext, FindConfigured, PlaceThreads
from threadline.messaging.shared_rooms import SHARED, share
from threadline.ports import Transaction

ROOM_PLATFORMS: frozenset[Surface] = frozenset(("matrix",))
"""Platforms whose places are rooms."""

SENDER = "sender"
SPACE = "space"
NEXT_INDEX = "next_index"
CLOSED = "closed"
NO_SPACE_TEXT = "You have no space yet, so there is nowhere to put a new room. Invite me to a room, and I make one."
_SPACE_REQUESTED_TEXT = "I am opening your space again and invite you to it."
SPACE_PENDING_TEXT = "Your space is still being made. Please try again in a moment."
_WELCOME = "You can write here; `!help` lists what I do."


class RoomChanges(NamedTuple):
    """What a command changed about the room itself, for the bot to carry out."""

    name: str | None = None
    binding: RoomBinding | None = None


NO_CHANGES = RoomChanges()


class RoomThreads(PlaceThreads):
    """`CommandThreads` for one command in one room."""

    def __init__(
        self,
        tx: Transaction,
        sealer: Sealer,
        context: CommandContext,
        homes: HomeThreads,
        recipient: str,
        request_id: str,
    ) -> None:
        super().__init__(tx, sealer, context, homes)
        self._recipient = recipient
        self._request_id = request_id
        self.changes = RoomChanges()

    async def here(self) -> CurrentThread:
        """The room's binding and thread; a room without one gets a thread and, in a space, a label."""
        if self._current is None:
            tx, (platform, place, sender, agent_id, *_) = self._tx, self._context
            binding = await tx.binding(platform, place)
            thread = None if binding is None else await tx.thread(binding.thread_id)
            if binding is None or thread is None:
                thread = await new_thread_for(tx, agent_id, None)
                label = await self._reserve_label() if binding is None else None
                metadata = {**({} if binding is None else binding.metadata), SENDER: sender}
                binding = await tx.bind(platform, place, thread.id, label=label, metadata=self._sealer.json(metadata))
                self._note_binding(binding)
            self._current = CurrentThread(binding, thread)
        return self._current

    def _note_binding(self, binding: Binding) -> None:
        is_shared = binding.metadata.get(SHARED) is True
        told = RoomBinding(binding.thread_id, self._context.sender, binding.label, is_shared)
        self.changes = self.changes._replace(binding=told)

    async def _reserve_label(self) -> str | None:
        space = await find_space(self._tx, self._context.platform, self._context.sender)
        return None if space is None else await reserve_label(self._tx, self._sealer, space)

    async def open_place(self, thread: ChatInfo, reply: str) -> str | None:
        """Requests a room for the thread; the user is told when it is open, or refused."""
        platform, sender = self._context.platform, self._context.sender
        space = await find_space(self._tx, platform, sender)
        if space is None:
            raise InvalidInput(NO_SPACE_TEXT)
        if is_pending(space):
            raise InvalidInput(SPACE_PENDING_TEXT)
        label = await reserve_label(self._tx, self._sealer, space)
        binding, name = RoomBinding(thread.id, sender, label), thread.title or label
        if space.metadata.get(CLOSED):
            request = await reopening(self._tx, self._sealer, space, binding, name)
        else:
            request = RoomRequest(binding, name, str(space.metadata[SPACE]))
        await request_room(self._tx, platform, self._recipient, self._request_id, request)
        return None

    async def continue_here(self, thread: ChatInfo, *, loaded: str | None = None) -> None:
        others = await self._tx.bindings(surface=self._context.platform, thread_id=thread.id)
        for other in others:
            if other.place != self._context.place and not is_space(other):
                raise Conflict(f"this chat is open in {other.label or 'another room'}: write there, or branch it")
        await super().continue_here(thread, loaded=loaded)
        self._current = None
        await self.unarchive()

    async def unarchive(self) -> None:
        """Puts the room's thread into the list of chats, if it was archived."""
        thread = (await self.here()).thread
        if thread.archived_at is not None:
            await self._tx.update_thread(thread.id, ThreadChanges(archived=False))

    async def set_agent(self, agent_id: str, configured: FindConfigured) -> None:
        """The agent that answers in this room, with its own model. NotFound."""
        is_default = agent_id == self._context.agent_id
        if not is_default and await self._tx.agent(agent_id) is None and configured(agent_id) is None:
            raise NotFound("agent", agent_id)
        thread = (await self.here()).thread
        await self._tx.update_thread(thread.id, ThreadChanges(agent_id=agent_id, model=None))

    async def share(self, argument: str | None) -> str:
        reply, binding = await share(self._tx, self._sealer, self._context, argument)
        self.changes = self.changes._replace(binding=binding)
        return reply

    async def reopen_space(self) -> str:
        """Opens the user's space again if they have left it. What to reply."""
        tx, (platform, _, sender, agent_id, *_) = self._tx, self._context
        space = await find_space(tx, platform, sender)
        if space is not None and not is_pending(space) and not space.metadata.get(CLOSED):
            return f"Your space is open: https://matrix.to/#/{space.metadata[SPACE]}"
        reply = await welcome(tx, self._sealer, platform, sender, agent_id, self._recipient, self._request_id)
        return _SPACE_REQUESTED_TEXT if reply is None else SPACE_PENDING_TEXT

    async def bind(self, thread_id: str, metadata: dict[str, Any]) -> Binding:
        before = (await self.here()).binding.thread_id
        binding = await super().bind(thread_id, metadata)
        if thread_id != before:
            self._note_binding(binding)
        return binding

    async def find(self, name: str) -> list[Thread]:
        for binding in await self._tx.bindings(surface=self._context.platform):
            if binding.label is not None and binding.label == name.upper() and not is_space(binding):
                thread = await self._tx.thread(binding.thread_id)
                return [] if thread is None else [thread]
        return list(await super().find(name))

    async def recent(self, limit: int) -> list[CurrentChat]:
        rooms = await self._tx.bindings(surface=self._context.platform)
        labels = {room.thread_id: room.label for room in rooms if not is_space(room)}
        return [chat._replace(label=labels.get(chat.thread.id)) for chat in await super().recent(limit)]

    async def rename(self, title: str) -> Thread:
        thread = await super().rename(title)
        # With the sender: the bot renames the room only for someone who may do it themselves.
        self._note_binding((await self.here()).binding)
        self.changes = self.changes._replace(name=thread.title)
        return thread

    async def is_used_elsewhere(self, thread: Thread) -> bool:
        bound = await self._tx.bindings(thread_id=thread.id)
        rooms = [each for each in bound if not is_space(each) and not is_home(each)]
        return len(rooms) > 1


def room_handlers(threads: RoomThreads, configured: FindConfigured) -> Mapping[CommandName, Handler]:
    """The commands that exist only where the bot opens rooms."""

    async def unarchive(call: CommandCall) -> str:
        await threads.unarchive()
        return "This chat is in the list."

    async def space(call: CommandCall) -> str:
        return await threads.reopen_space()

    async def agent(call: CommandCall) -> str:
        if call.argument is None:
            return f"Agent `{escape(await threads.agent_id())}`. {call.spell('agent NAME')} changes it for this room."
        await threads.set_agent(call.argument, configured)
        return f"The agent `{escape(call.argument)}` answers in this room from now on."

    async def share(call: CommandCall) -> str:
        return await threads.share(call.argument)

    return {"unarchive": unarchive, "space": space, "agent": agent, "share": share}


def space_place(sender: str) -> str:
    """How bindings spell a user's space, from the moment that it is requested."""
    return f"space {sender}"


def is_space(binding: Binding) -> bool:
    return NEXT_INDEX in binding.metadata


def is_pending(space: Binding) -> bool:
    """Whether the space is requested and not open yet."""
    return space.metadata.get(SPACE) is None and not space.metadata.get(CLOSED)


async def close_space(tx: Transaction, sealer: Sealer, space: Binding) -> None:
    """The user has left the space. Its labels continue in the next one."""
    metadata = {name: value for name, value in space.metadata.items() if name != SPACE}
    await tx.bind(space.surface, space.place, space.thread_id, metadata=sealer.json({**metadata, CLOSED: True}))


async def reopening(
    tx: Transaction, sealer: Sealer, space: Binding, binding: RoomBinding, name: str, *, is_space_only: bool = False
) -> RoomRequest:
    """A request for a new space in place of one that was left; until it is open, no other is requested."""
    current = await tx.binding(space.surface, space.place) or space
    metadata = {key: value for key, value in current.metadata.items() if key != CLOSED}
    await tx.bind(space.surface, space.place, space.thread_id, metadata=sealer.json(metadata))
    bound = [each for each in await tx.bindings(surface=space.surface) if not is_space(each)]
    rooms = tuple(sorted({room for each in bound if (room := room_of(each)) is not None and each.label}))
    return RoomRequest(binding, name, rooms=rooms, is_space_only=is_space_only, is_again=True)


def room_of(binding: Binding) -> str | None:
    """The room's id as the platform spells it; None for a space that is not open yet."""
    if is_space(binding):
        space = binding.metadata.get(SPACE)
        return None if space is None else str(space)
    return binding.place.partition(" ")[0]


async def find_space(tx: Transaction, platform: Surface, sender: str) -> Binding | None:
    return await tx.binding(platform, space_place(sender))


async def reserve_label(tx: Transaction, sealer: Sealer, space: Binding) -> str:
    index = int(space.metadata[NEXT_INDEX])
    await _count(tx, sealer, space, index + 1)
    return f"C{index}"


async def _count(tx: Transaction, sealer: Sealer, space: Binding, next_index: int) -> None:
    metadata = sealer.json({**space.metadata, NEXT_INDEX: next_index})
    await tx.bind(space.surface, space.place, space.thread_id, metadata=metadata)


async def welcome(
    tx: Transaction, sealer: Sealer, platform: Surface, sender: str, agent_id: str, recipient: str, request_id: str
) -> str | None:
    """Requests a space with a first room, if the user has none. What to reply now; None if the reply follows."""
    space = await find_space(tx, platform, sender)
    if space is not None and space.metadata.get(CLOSED):
        binding = RoomBinding(space.thread_id, sender)
        request = await reopening(tx, sealer, space, binding, "Threadline", is_space_only=True)
        await request_room(tx, platform, recipient, request_id, request)
        return None
    if space is not None:
        return _WELCOME
    thread = await new_thread_for(tx, agent_id, None)
    # The binding exists before the space: a second invitation at the same time must not open a second one.
    metadata = sealer.json({NEXT_INDEX: 2, SENDER: sender})
    await tx.bind(platform, space_place(sender), thread.id, metadata=metadata)
    request = RoomRequest(RoomBinding(thread.id, sender, "C1"), "C1")
    await request_room(tx, platform, recipient, request_id, request)
    return None


async def request_room(
    tx: Transaction, platform: Surface, recipient: str, request_id: str, request: RoomRequest
) -> None:
    await tx.enqueue(
        platform, recipient, encode(request), turn_id=None, owner_id=tx.scope.user_id, id=f"{request_id}-room"
    )


async def bind_opened(tx: Transaction, sealer: Sealer, row: OutboxRow, request: RoomRequest, opened: Opened) -> None:
    """Binds the thread to the room that was opened for it, and tells the user. In the owner's scope."""
    thread_id, sender, label = request.binding.thread_id, request.binding.sender, request.binding.label
    place = bound_place(opened.place, tx.scope.user_id)
    try:
        if not request.is_space_only:
            await tx.bind(row.platform, place, thread_id, label=label, metadata=sealer.json({SENDER: sender}))
        if request.space is None and opened.space is not None:
            space = await find_space(tx, row.platform, sender)
            metadata = {**({NEXT_INDEX: 2, SENDER: sender} if space is None else space.metadata), SPACE: opened.space}
            space_thread = thread_id if space is None else space.thread_id
            await tx.bind(row.platform, space_place(sender), space_thread, metadata=sealer.json(metadata))
    except NotFound:
        # The thread was deleted while its room was opened: the room gets another with its first message.
        pass
    if request.is_space_only:
        reply = f"{_WELCOME} Your space is open again, and you are invited: {opened.link}"
    elif request.space is None and not request.is_again:
        reply = f"{_WELCOME} I made you a space, with the room {label}: {opened.link}"
    else:
        name = "" if request.name == label else f" “{request.name}”"
        reply = f"{label}{name} is ready. You are invited: {opened.link}"
    await _reply(tx, sealer, row, reply)


async def discard_refused(tx: Transaction, sealer: Sealer, row: OutboxRow, request: RoomRequest, reason: str) -> None:
    """Gives thread and label of a refused room back, and tells the user. In the owner's scope."""
    thread_id, sender, label = request.binding.thread_id, request.binding.sender, request.binding.label
    space = await find_space(tx, row.platform, sender)
    if request.is_again and space is not None:
        await close_space(tx, sealer, space)
    elif request.space is None:
        await tx.unbind(row.platform, space_place(sender))
    elif space is not None and label == f"C{int(space.metadata[NEXT_INDEX]) - 1}":
        # Only the last label can be given back: later ones are in use.
        await _count(tx, sealer, space, int(space.metadata[NEXT_INDEX]) - 1)
    if not request.is_space_only:
        await tx.delete_thread(thread_id)
        await tx.purge_thread(thread_id)
    if request.space is None:
        reply = f"You can write here. I could not make you a space: {reason}."
    else:
        reply = f"The homeserver refused to open a room: {reason}. Nothing was changed."
    await _reply(tx, sealer, row, reply)


async def _reply(tx: Transaction, sealer: Sealer, row: OutboxRow, text: str) -> None:
    message = encode(RoomMessage(sealer.text(text, "reply"), is_notice=True))
    await tx.enqueue(row.platform, row.recipient, message, turn_id=None, owner_id=row.owner_id, id=f"{row.id}-done")

"""Rooms: places of a platform on which the bot opens rooms of its own (Matrix).

Each room has a thread of its own, and no two rooms share one. A user's rooms are in a space and have labels (C1, C2 …);
the space's binding counts them. Opening a room is a side effect outside the database: the command creates the thread,
reserves the label and enqueues a `RoomRequest` in one transaction. When the bot reports the room, the thread is bound
to it; when the homeserver refuses, thread and label are given back. Either way the user is told.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from threadline.core.channels import Binding, OutboxRow
from threadline.core.errors import Conflict, InvalidInput, NotFound
from threadline.core.platform_messages import Opened
from threadline.core.room_messages import RoomBinding, RoomMessage, RoomRequest, encode
from threadline.core.sealing import Sealer
from threadline.core.threads import Thread
from threadline.core.turns import Surface
from threadline.messaging.bindings import CurrentThread, bound_place, new_thread_for
from threadline.messaging.command_executor import ChatInfo, CurrentChat
from threadline.messaging.place_threads import CommandContext, PlaceThreads
from threadline.ports import Transaction

ROOM_PLATFORMS: frozenset[Surface] = frozenset(("matrix",))
"""Platforms whose places are rooms."""

SENDER = "sender"
SPACE = "space"
NEXT_INDEX = "next_index"
NO_SPACE_TEXT = "You have no space yet, so there is nowhere to put a new room. Invite me to a room, and I make one."
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
        self, tx: Transaction, sealer: Sealer, context: CommandContext, recipient: str, request_id: str
    ) -> None:
        super().__init__(tx, sealer, context)
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
        told = RoomBinding(binding.thread_id, self._context.sender, binding.label)
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
        if space.metadata.get(SPACE) is None:
            raise InvalidInput(SPACE_PENDING_TEXT)
        label = await reserve_label(self._tx, self._sealer, space)
        request = RoomRequest(RoomBinding(thread.id, sender, label), thread.title or label, str(space.metadata[SPACE]))
        await request_room(self._tx, platform, self._recipient, self._request_id, request)
        return None

    async def continue_here(self, thread: ChatInfo, *, loaded: str | None = None) -> None:
        others = await self._tx.bindings(surface=self._context.platform, thread_id=thread.id)
        for other in others:
            if other.place != self._context.place and not is_space(other):
                raise Conflict(f"this chat is open in {other.label or 'another room'}: write there, or branch it")
        await super().continue_here(thread, loaded=loaded)

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
        self.changes = self.changes._replace(name=thread.title)
        return thread

    async def is_used_elsewhere(self, thread: Thread) -> bool:
        rooms = [each for each in await self._tx.bindings(thread_id=thread.id) if not is_space(each)]
        return len(rooms) > 1


def space_place(sender: str) -> str:
    """How bindings spell a user's space, from the moment that it is requested."""
    return f"space {sender}"


def is_space(binding: Binding) -> bool:
    return NEXT_INDEX in binding.metadata


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
    if await find_space(tx, platform, sender) is not None:
        return _WELCOME
    thread = await new_thread_for(tx, agent_id, None)
    # The binding exists before the space: a second invitation at the same time must not open a second one.
    metadata = sealer.json({NEXT_INDEX: 2, SENDER: sender})
    await tx.bind(platform, space_place(sender), thread.id, metadata=metadata)
    request = RoomRequest(RoomBinding(thread.id, sender, "C1"), "Chat")
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
        await tx.bind(row.platform, place, thread_id, label=label, metadata=sealer.json({SENDER: sender}))
        if request.space is None and opened.space is not None:
            space = await find_space(tx, row.platform, sender)
            metadata = {**({NEXT_INDEX: 2, SENDER: sender} if space is None else space.metadata), SPACE: opened.space}
            await tx.bind(row.platform, space_place(sender), thread_id, metadata=sealer.json(metadata))
    except NotFound:
        # The thread was deleted while its room was opened: the room gets another with its first message.
        pass
    if request.space is None:
        reply = f"{_WELCOME} I made you a space, with the room {label}: {opened.link}"
    else:
        name = "" if request.name == label else f" “{request.name}”"
        reply = f"{label}{name} is ready. You are invited: {opened.link}"
    await _reply(tx, sealer, row, reply)


async def discard_refused(tx: Transaction, sealer: Sealer, row: OutboxRow, request: RoomRequest, reason: str) -> None:
    """Gives thread and label of a refused room back, and tells the user. In the owner's scope."""
    thread_id, sender, label = request.binding.thread_id, request.binding.sender, request.binding.label
    space = await find_space(tx, row.platform, sender)
    if request.space is None:
        await tx.unbind(row.platform, space_place(sender))
    elif space is not None and label == f"C{int(space.metadata[NEXT_INDEX]) - 1}":
        # Only the last label can be given back: later ones are in use.
        await _count(tx, sealer, space, int(space.metadata[NEXT_INDEX]) - 1)
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

"""Shared rooms: one thread for everyone in a room.

The thread belongs to the user who shared the room. It is bound to the room itself instead of to the room and one user,
and the binding alone lets others in: the inbox handles what they write there in the owner's scope, with the author in
the message, and what they use is checked and counted as theirs. Sharing is suspended while the owner's account is not
linked to them or may not write, and ends when they leave the room.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.channels import Binding
from threadline.core.commands import Command, CommandName
from threadline.core.errors import Conflict, DuplicateId, InvalidInput
from threadline.core.platform_messages import Arrival
from threadline.core.room_messages import RoomBinding
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Turn
from threadline.messaging.bindings import bound_place, new_thread_for
from threadline.messaging.place_threads import CommandContext
from threadline.ports import Store, Transaction

SHARED = "shared"
"""In the metadata of the binding of a shared room."""
_SENDER = "sender"
_NOT_MODERATOR = "only someone who may change the settings of this room can do that"
# About the sender's account or other rooms of theirs: they are the same in every room.
_PERSONAL: frozenset[CommandName] = frozenset(("new", "chats", "space", "link", "unlink", "whoami", "help"))
# `undo` and `stop` check whose message it is, `share` who may share; a question can be answered by who was asked.
_FOR_EVERYONE: frozenset[CommandName] = frozenset(("context", "undo", "stop", "share", "cancel", "yes", "no"))


class SharedRoom(NamedTuple):
    """The owner of a shared room's thread, and their account on the platform."""

    owner: Scope
    account: str
    thread_id: str


class SharedRooms:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, tenant_id: str, arrival: Arrival) -> SharedRoom | None:
        """The room of an arrival, if it is shared now."""
        session = self._store.scoped(system_scope(tenant_id))
        binding = await session.binding(arrival.platform, arrival.place)
        account = None if binding is None else str(binding.metadata.get(_SENDER))
        owner = None if account is None else await session.sender(arrival.platform, account)
        if binding is None or account is None or owner is None or not _may_own(binding, owner.owner_id):
            return None
        if owner.state != "verified" or owner.role == "viewer":
            return None
        # As a member, also if the owner is an administrator: others act in this scope.
        return SharedRoom(Scope(tenant_id, owner.owner_id), account, binding.thread_id)

    async def free_places(self, sharer: Scope, arrival: Arrival) -> None:
        """Unbinds the threads that others have in a room which is about to be shared, so that they can continue them
        elsewhere, and the thread of a sharing that is suspended. Safe to repeat."""
        own = bound_place(arrival.place, sharer.user_id)

        async def work(tx: Transaction) -> None:
            for each in await tx.bindings(surface=arrival.platform):
                is_here = each.place == arrival.place or each.place.startswith(f"{arrival.place} ")
                if is_here and each.place != own:
                    await tx.unbind(arrival.platform, each.place)

        await self._store.transact(system_scope(sharer.tenant_id), work)

    async def turns_of(self, room: SharedRoom, user_id: str) -> list[Turn]:
        """The active turns that a user asked for in the room's thread."""
        active = await self._store.scoped(room.owner).active_turns(room.thread_id)
        return [turn for turn in active if turn.asked_by == user_id]


def _may_own(binding: Binding, owner_id: str) -> bool:
    """False once the account that shared the room is another user's."""
    return binding.metadata.get(SHARED) is True and binding.owner_id == owner_id


def is_for_thread(sender: Scope, arrival: Arrival, command: object) -> bool:
    """Whether an arrival in a shared room concerns its thread; otherwise it is handled as in any other room, in its
    sender's scope. A viewer's message does, and is denied; what else viewers do concerns only what is theirs."""
    if isinstance(command, Command) and command.name in _PERSONAL:
        return False
    return sender.role != "viewer" or arrival.kind == "message"


async def check_command(tx: Transaction, context: CommandContext, command: Command) -> None:
    """InvalidInput if the author may not use the command on the thread of a shared room."""
    if context.author_id in (None, tx.scope.user_id):
        return
    if command.name not in _FOR_EVERYONE:
        raise InvalidInput(f"only {context.sender}, who shared this room, can use `!{command.name}` here")
    if command.name == "undo":
        binding = await tx.binding(context.platform, context.place)
        last = [] if binding is None else await tx.last_turns(binding.thread_id, 1)
        turn = await tx.turn(last[0].turn_id) if last and last[0].turn_id is not None else None
        if last and (turn is None or turn.asked_by != context.author_id):
            raise InvalidInput(f"the last message is not yours: its author or {context.sender} can undo it")


async def share(
    tx: Transaction, sealer: Sealer, context: CommandContext, argument: str | None
) -> tuple[str, RoomBinding | None]:
    """Shares the room of a command, or ends that. The reply, and what the room's state says from now on."""
    if argument not in (None, "off"):
        raise InvalidInput(f"`!share` takes nothing or `off`, got `{argument}`")
    if argument == "off":
        return await _end(tx, sealer, context)
    if context.author_id is not None:
        raise Conflict(f"this room is shared already, by {context.sender}: `!share off` ends it")
    if not context.is_by_moderator:
        raise InvalidInput(_NOT_MODERATOR)
    before = await tx.binding(context.platform, context.place)
    label = None if before is None else before.label
    thread = await new_thread_for(tx, context.agent_id, None)
    await tx.unbind(context.platform, context.place)
    metadata = sealer.json({_SENDER: context.sender, SHARED: True})
    room = context.place.partition(" ")[0]
    try:
        await tx.bind(context.platform, room, thread.id, label=label, metadata=metadata)
    except DuplicateId as exc:
        raise Conflict("this room is shared already") from exc
    reply = (
        f"This room has one chat for everyone from now on. It is new, belongs to {context.sender}, and names to the "
        "agent who wrote what. Chats that you had here are kept: `!chats` in a private chat with me lists yours."
    )
    return reply, RoomBinding(thread.id, context.sender, label, is_shared=True)


async def _end(tx: Transaction, sealer: Sealer, context: CommandContext) -> tuple[str, RoomBinding | None]:
    """The thread stays its owner's, in this room."""
    binding = await tx.binding(context.platform, context.place)
    if context.author_id is None or binding is None:
        return "This room is not shared.", None
    if context.author_id != tx.scope.user_id and not context.is_by_moderator:
        raise InvalidInput(f"{_NOT_MODERATOR}, or {context.sender}, who shared it")
    await tx.unbind(context.platform, context.place)
    own = bound_place(context.place, tx.scope.user_id)
    metadata = sealer.json({_SENDER: context.sender})
    await tx.bind(context.platform, own, binding.thread_id, label=binding.label, metadata=metadata)
    reply = f"Everyone has a chat of their own here again. {context.sender} keeps the shared one."
    return reply, RoomBinding(binding.thread_id, context.sender, binding.label)

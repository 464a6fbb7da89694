"""ChatCommands: reads and executes the commands of messaging platforms, in the transaction that claimed the message."""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.channels import Binding
from threadline.core.commands import Command, find_spec
from threadline.core.open_questions import question_in
from threadline.core.sealing import Sealer
from threadline.messaging.command_executor import CommandCall, Hint, interpret
from threadline.messaging.home_threads import HomeThreads
from threadline.messaging.place_threads import CommandContext, FindConfigured, PlaceThreads, chat_executor
from threadline.messaging.rooms import ROOM_PLATFORMS, RoomChanges, RoomThreads, close_space, room_handlers, welcome
from threadline.messaging.shared_rooms import check_command
from threadline.ports import Transaction


class CommandReply(NamedTuple):
    """`text` is None if the reply follows later. `changes` are for the bot of a room."""

    text: str | None
    changes: RoomChanges = RoomChanges()
    stopped: tuple[str, ...] = ()
    """Turns that were asked to stop."""


class ChatCommands:
    """What it writes belongs to the caller's transaction."""

    def __init__(self, sealer: Sealer, configured: FindConfigured, homes: HomeThreads) -> None:
        self._sealer = sealer
        self.homes = homes
        self._configured = configured

    async def read(self, tx: Transaction, context: CommandContext, text: str) -> Command | Hint | None:
        """The command in a text, or the one that it answers an open question with; None if the text is for the
        agent."""
        binding = await tx.binding(context.platform, context.place)
        question = None if binding is None else question_in(binding.metadata)
        return interpret(
            text, question, user_id=context.author_id or tx.scope.user_id, now=context.now, place=context.kind
        )

    async def execute(
        self, tx: Transaction, context: CommandContext, command: Command, *, recipient: str, request_id: str
    ) -> CommandReply:
        """InvalidInput, NotFound and Conflict say why it failed, in words for the user."""
        if context.platform not in ROOM_PLATFORMS:
            threads = PlaceThreads(tx, self._sealer, context, self.homes)
            text = await self._run(tx, context, threads, command)
            return CommandReply(text, stopped=tuple(threads.stopped))
        await check_command(tx, context, command)
        room = self.room(tx, context, recipient, request_id)
        text = await self._run(tx, context, room, command)
        return CommandReply(text, room.changes, tuple(room.stopped))

    async def _run(
        self, tx: Transaction, context: CommandContext, threads: PlaceThreads, command: Command
    ) -> str | None:
        extra = room_handlers(threads, self._configured) if isinstance(threads, RoomThreads) else {}
        executor = chat_executor(tx, context, threads, self._configured, extra)
        return await executor.execute(command, _call(tx, context, threads))

    async def welcome(self, tx: Transaction, context: CommandContext, recipient: str, request_id: str) -> str | None:
        """Opens the user's space, if there is none. What to reply now; None if the reply follows."""
        return await welcome(
            tx, self._sealer, context.platform, context.sender, context.agent_id, recipient, request_id
        )

    async def close_space(self, tx: Transaction, space: Binding) -> None:
        """The user has left their space."""
        await close_space(tx, self._sealer, space)

    def room(self, tx: Transaction, context: CommandContext, recipient: str, request_id: str) -> RoomThreads:
        return RoomThreads(tx, self._sealer, context, self.homes, recipient, request_id)


def _call(tx: Transaction, context: CommandContext, threads: PlaceThreads) -> CommandCall:
    return CommandCall(threads, context.author_id or tx.scope.user_id, context.now, context.kind)


def is_for_viewers(command: Command | Hint, context: CommandContext) -> bool:
    """Whether a user who may only read can use it."""
    spec = find_spec(command.name, context.kind) if isinstance(command, Command) else None
    return spec is not None and spec.role == "viewer"

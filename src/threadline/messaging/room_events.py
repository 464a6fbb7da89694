"""Events that are no messages, from platforms whose bot delivers them: invitations, departures, edits, retractions."""

from __future__ import annotations

import datetime as dt

from threadline.core.platform_messages import Arrival
from threadline.core.reply_text import inbox_key, turn_key
from threadline.core.room_messages import RoomMessage, encode
from threadline.core.threads import Scope, Thread
from threadline.core.turn_commits import outbox_id
from threadline.core.turns import Turn
from threadline.messaging.bindings import bound_place, place_of
from threadline.messaging.chat_commands import ChatCommands
from threadline.messaging.outbox import Outbox, answer_id
from threadline.messaging.place_threads import CommandContext
from threadline.messaging.receipts import Receipt
from threadline.messaging.rooms import ROOM_PLATFORMS, SPACE, find_space
from threadline.messaging.unlinked_senders import claim
from threadline.ports import Store, Transaction
from threadline.turns.runner import Runner


class RoomEvents:
    def __init__(self, store: Store, outbox: Outbox, commands: ChatCommands, runner: Runner) -> None:
        self._store = store
        self._outbox = outbox
        self._commands = commands
        self._runner = runner

    async def thread(self, scope: Scope, arrival: Arrival) -> Thread | None:
        """The thread of the room, which may have an agent of its own; None if the room is not bound yet, and on
        platforms without rooms."""
        if arrival.platform not in ROOM_PLATFORMS:
            return None
        session = self._store.scoped(scope)
        binding = await session.binding(arrival.platform, place_of(arrival, scope.user_id))
        return None if binding is None else await session.thread(binding.thread_id)

    async def welcome(self, scope: Scope, arrival: Arrival, correlation_id: str, agent_id: str) -> Receipt:
        """The user invited the bot: opens their space and first room where the platform has them, and greets."""

        async def work(tx: Transaction) -> Receipt:
            arrived = await claim(tx, arrival, correlation_id, owner_id=scope.user_id)
            if arrived is None:
                return Receipt("duplicate")
            text = await self._open_space(tx, arrival, agent_id)
            if text is not None:
                await self._outbox.answer(tx, arrived, text, owner_id=scope.user_id)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision="welcome")
            return Receipt("welcome")

        return await self._store.transact(scope, work)

    async def open_space(self, scope: Scope, arrival: Arrival, agent_id: str) -> None:
        """Opens the space of a user who has just linked their account, on platforms that have spaces."""
        await self._store.transact(scope, lambda tx: self._open_space(tx, arrival, agent_id))

    async def _open_space(self, tx: Transaction, arrival: Arrival, agent_id: str) -> str | None:
        if arrival.platform not in ROOM_PLATFORMS:
            return None
        context = context_of(tx, arrival, agent_id, arrival.sent_at)
        return await self._commands.welcome(tx, context, arrival.recipient, request_id(arrival))

    async def depart(self, scope: Scope, arrival: Arrival, correlation_id: str) -> Receipt:
        """The user left a room: its thread can be continued elsewhere. If it is their space, the next invitation or
        command opens another."""

        async def work(tx: Transaction) -> Receipt:
            place = bound_place(arrival.place, scope.user_id)
            binding = await tx.binding(arrival.platform, place)
            space = await find_space(tx, arrival.platform, arrival.sender)
            is_own_space = space is not None and space.metadata.get(SPACE) == arrival.place
            shared = await tx.binding(arrival.platform, arrival.place)
            if binding is None and shared is None and not is_own_space:
                return Receipt("ignored")
            # Claimed, so that a repeat does not unbind a room that the user has joined again.
            arrived = await claim(tx, arrival, correlation_id, owner_id=scope.user_id)
            if arrived is None:
                return Receipt("duplicate")
            if binding is not None:
                await tx.unbind(arrival.platform, place)
            if shared is not None:
                # Their own: a scope has only its user's bindings. Without its owner a room is not shared any more.
                await tx.unbind(arrival.platform, arrival.place)
            if space is not None and is_own_space:
                await self._commands.close_space(tx, space)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision="ignored")
            return Receipt("ignored")

        return await self._store.transact(scope, work)

    async def retract(self, scope: Scope, arrival: Arrival, correlation_id: str) -> Receipt:
        """Undoes the retracted message if it is the last question of its thread. Earlier ones stay: later messages
        refer to them."""

        async def work(tx: Transaction) -> Receipt:
            if (turn := await last_turn(tx, arrival)) is None:
                return Receipt("ignored")
            arrived = await claim(tx, arrival, correlation_id, owner_id=scope.user_id)
            if arrived is None:
                return Receipt("duplicate")
            if turn.is_active:
                await tx.request_stop(turn.id)
            await tx.undo(turn.thread_id)
            await self.redact_reply(tx, arrival, turn)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision="command")
            return Receipt("command", turn)

        receipt = await self._store.transact(scope, work)
        if receipt.turn is not None and receipt.turn.is_active:
            # The stored request reaches whichever process runs the turn; a turn of this process ends now.
            await self._runner.stop(scope, receipt.turn.id)
        return Receipt(receipt.decision)

    async def redact_reply(self, tx: Transaction, arrival: Arrival, turn: Turn) -> None:
        """Enqueues the redaction of a reply whose question was edited or retracted. A reply that was not sent yet is
        sent, and says that it was stopped. Elsewhere the reply stays: what people have read is not taken away."""
        if arrival.platform not in ROOM_PLATFORMS:
            return
        row = await tx.outbox_row(outbox_id(turn.id, 0))
        if row is None:
            return
        ids = tuple((row.message_id or "").split())
        payload = encode(RoomMessage("", redacts_turn=turn.id, redacts=ids))
        await tx.enqueue(
            arrival.platform,
            row.recipient,
            payload,
            turn_id=None,
            owner_id=tx.scope.user_id,
            id=f"{request_id(arrival)}-redact",
        )


def is_plain(arrival: Arrival, room_thread: Thread | None) -> bool:
    """Whether the store can accept it in one step: a message to the bot, and in a bound room whose thread is not
    archived. A room that is not bound yet gets a label and a state event first; a thread that is used again is put back
    into the list, in the same transaction as the message."""
    if arrival.kind != "message" or not arrival.is_addressed:
        return False
    is_listed = room_thread is not None and room_thread.archived_at is None
    return arrival.platform not in ROOM_PLATFORMS or is_listed


async def last_turn(tx: Transaction, arrival: Arrival) -> Turn | None:
    """The turn of the message that is edited or retracted, if that message is the last question in the place's thread.
    Users change only their own messages: turn keys are the user's own, and a shared thread knows who asked."""
    if arrival.target is None:
        return None
    turn = await tx.turn_by_key(turn_key(arrival.platform, inbox_key(arrival.target)))
    binding = await tx.binding(arrival.platform, place_of(arrival, tx.scope.user_id))
    if turn is None or binding is None or turn.thread_id != binding.thread_id:
        return None
    if turn.asked_by != (arrival.author_id or turn.owner_id):
        return None
    last = await tx.last_turns(turn.thread_id, 1)
    return turn if last and last[0].turn_id == turn.id else None


def context_of(tx: Transaction, arrival: Arrival, agent_id: str, now: dt.datetime) -> CommandContext:
    # Commands in a shared room are about its owner's thread.
    sender = arrival.sender if arrival.author is None else arrival.author.owner_account
    return CommandContext(
        arrival.platform,
        place_of(arrival, tx.scope.user_id),
        sender,
        agent_id,
        now,
        arrival.shared,
        has_rooms=arrival.platform in ROOM_PLATFORMS,
        author_id=arrival.author_id,
        is_by_moderator=arrival.is_by_moderator,
    )


def request_id(arrival: Arrival) -> str:
    """What the outbox rows that this arrival causes are named after."""
    return answer_id(arrival.platform, inbox_key(arrival.key))

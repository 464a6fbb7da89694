"""Chat contexts: the six calls of a chat surface, on any gateway.

A chat context is a thread, named by its id. Each call may be repeated after a crash: what is created has an id that the
caller chose, what moves a history has a key, and a message is stored under the key it was sent with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

from msgspec import UNSET

from threadline.core.errors import DuplicateId, KeyReused, NotFound
from threadline.core.events import Event
from threadline.core.ids import check_id, is_state_key
from threadline.core.messages import user
from threadline.core.threads import SavedPoint, Thread, ThreadChanges, ThreadFields, ThreadUpdate
from threadline.core.turns import TurnInfo, reply_id
from threadline.ports import Answered, Approver, Gateway, GatewayThread


class ChatContexts:
    """`approver` decides about tools that need approval; without one the gateway's own rule applies."""

    def __init__(self, gateway: Gateway, *, approver: Approver | None = None) -> None:
        self._gateway = gateway
        self._approver = approver

    async def create_chat_context(self, *, chat_id: str | None = None, title: str | None = None) -> Thread:
        """A new, empty context; the existing one if this user has one under the id."""
        return await self._once(chat_id, self._gateway.create_thread(**_fields(chat_id, title)))

    async def branch_chat_context(
        self, chat_id: str, *, new_chat_id: str | None = None, title: str | None = None
    ) -> Thread:
        """A new context that begins as the other is now. No message is copied. NotFound."""
        thread = await self._gateway.thread(chat_id)
        return await self._once(new_chat_id, thread.branch(**_fields(new_chat_id, title)))

    async def _once(self, chat_id: str | None, creation: Awaitable[GatewayThread]) -> Thread:
        try:
            return (await creation).info
        except DuplicateId:
            found = None if chat_id is None else await self.chat_context(chat_id)
            if found is None:
                raise
            return found

    async def save_chat_context(self, chat_id: str, name: str) -> SavedPoint:
        """Gives the context as it is now a name; a name used before moves. NotFound, InvalidName."""
        return await (await self._gateway.thread(chat_id)).save(name)

    async def load_chat_context(self, chat_id: str, name: str, *, key: str) -> Thread:
        """The context continues from the saved point. NotFound."""
        thread = await self._gateway.thread(chat_id)
        return await self._moved(thread, thread.load(name, key=key))

    async def undo_last(self, chat_id: str, *, key: str) -> Thread:
        """Undoes the last message and its answer. NotFound; InvalidInput if there is none."""
        thread = await self._gateway.thread(chat_id)
        return await self._moved(thread, thread.undo(key=key))

    async def _moved(self, thread: GatewayThread, move: Awaitable[None]) -> Thread:
        try:
            await move
        except KeyReused:
            # It was done in the thread to which the room was bound then.
            await thread.refresh()
        return thread.info

    async def chat_context(self, chat_id: str) -> Thread | None:
        check_id("chat", chat_id)
        try:
            return (await self._gateway.thread(chat_id)).info
        except NotFound:
            return None

    async def chat_contexts(self, *, limit: int = 50) -> list[Thread]:
        """Latest activity first, without the archived ones."""
        return list((await self._gateway.threads(limit=limit)).items)

    async def change_chat_context(self, chat_id: str, changes: ThreadChanges) -> Thread:
        """NotFound."""
        fields = ThreadUpdate.__annotations__
        given: Any = {name: value for name in fields if (value := getattr(changes, name)) is not UNSET}
        thread = await self._gateway.thread(chat_id)
        await thread.update(**given)
        return thread.info

    async def saved_points(self) -> list[SavedPoint]:
        return await self._gateway.saved_points()

    async def send_message(self, chat_id: str, text: str, *, key: str, instead_of: str | None = None) -> TurnInfo:
        """Stores the message and starts its turn. Returns as soon as the message is stored; a repeat with the same key
        stores nothing and gives the same turn as it is now. `instead_of` is the key of an earlier message that this one
        replaces: the context continues from before it. NotFound, Refused, InvalidInput."""
        check_id("key", key)
        thread = await self._gateway.thread(chat_id)
        try:
            return await self._send(thread, text, key, instead_of)
        except KeyReused as exc:
            # The same message, sent when the room was bound to another thread.
            if exc.state_key is None:
                raise
            thread = await self._gateway.thread(exc.state_key)
        try:
            return await self._send(thread, text, key, instead_of)
        except KeyReused:
            # The first time, the message that it replaces was gone already.
            return await self._send(thread, text, key, None)

    async def _send(self, thread: GatewayThread, text: str, key: str, instead_of: str | None) -> TurnInfo:
        question = user(text, id=key)
        reply = thread.ask(question, key=key, replaces=instead_of, approver=self._approver)
        await reply.accept()
        return await reply.turn()

    async def is_last(self, chat_id: str, message_key: str) -> bool:
        """Whether the message that was sent under this key is the user's last one in the context."""
        return await self._last_turn(chat_id, message_key) is not None

    async def _last_turn(self, chat_id: str, message_key: str) -> TurnInfo | None:
        """The turn of this message, if it is the user's last one and was sent in this very context: a branch shows the
        messages of its source as well."""
        check_id("key", message_key)
        try:
            newest = await (await self._gateway.thread(chat_id)).last_turns(1)
            if not newest or newest[0].id != message_key or newest[0].turn_id is None:
                return None
            turn = await self._gateway.turn(newest[0].turn_id)
        except NotFound:
            return None
        return turn if turn.thread_id == chat_id else None

    async def take_back(self, chat_id: str, message_key: str, *, key: str) -> bool:
        """Undoes the last message and its answer, which is stopped if it is still being written. False if the message
        is not the last: then nothing changes."""
        turn = await self._last_turn(chat_id, message_key)
        if turn is None:
            return False
        if turn.is_active:
            await (await self._gateway.thread(chat_id)).stop(turn.id)
        await self.undo_last(chat_id, key=key)
        return True

    async def stream_message(self, turn_id: str) -> AsyncIterator[Event]:
        """The answer as it is written, from its beginning, until the turn has ended, wherever it runs."""
        async for event in self._gateway.reply(turn_id):
            yield event

    async def answered(self, turn_id: str) -> Answered:
        """The turn as it is now, and its stored reply. NotFound, as it may be once its context is deleted."""
        turn = await self._gateway.turn(turn_id)
        thread = await self._gateway.thread(turn.thread_id)
        try:
            return Answered(turn, await thread.message(reply_id(turn_id)))
        except NotFound:
            return Answered(turn, None)


def _fields(chat_id: str | None, title: str | None) -> ThreadFields:
    """Where the id is a valid state key it is the key as well, so that it names the thread in URLs."""
    key = chat_id if chat_id is not None and is_state_key(chat_id) else None
    return {"id": chat_id, "state_key": key, "title": title}

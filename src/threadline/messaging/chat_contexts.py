"""The platform port in this process: chat contexts are threads, and messages take the one path of every turn.

Nothing here is a second path. What it adds to the use cases is that each verb may be asked again after a crash: what
is created has an id that the caller chose, and what moves a history is claimed under a key in the transaction that
moves it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from threadline.core.errors import DuplicateId, KeyReused, NotFound
from threadline.core.events import Event
from threadline.core.ids import check_id, is_state_key
from threadline.core.messages import Message, user
from threadline.core.threads import NewThread, SavedPoint, Thread, ThreadChanges
from threadline.core.turns import Surface, Turn
from threadline.ports import Answered, Approver, Store
from threadline.threads.user_threads import Threads
from threadline.turns.acceptance import TurnRequest, Turns, reply_id
from threadline.turns.runner import Runner
from threadline.turns.streams import Streams


class ChatContexts:
    """`threadline.ports.Platform` for one user on one surface."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        turns: Turns,
        runner: Runner,
        streams: Streams,
        *,
        surface: Surface,
        approver: Approver,
    ) -> None:
        self._store = store
        self._threads = threads
        self._turns = turns
        self._runner = runner
        self._streams = streams
        self._surface = surface
        self._approver = approver
        self._scope = threads.scope

    async def create_chat_context(self, *, chat_id: str | None = None, title: str | None = None) -> Thread:
        new = NewThread(id=chat_id, state_key=_key_of(chat_id), title=title)
        return await self._once(chat_id, lambda: self._threads.create(new))

    async def branch_chat_context(
        self, chat_id: str, *, new_chat_id: str | None = None, title: str | None = None
    ) -> Thread:
        new = NewThread(id=new_chat_id, state_key=_key_of(new_chat_id), title=title)
        return await self._once(new_chat_id, lambda: self._threads.branch(chat_id, new))

    async def _once(self, new_id: str | None, create: Callable[[], Awaitable[Thread]]) -> Thread:
        try:
            return await create()
        except DuplicateId:
            found = None if new_id is None else await self._threads.get(new_id)
            if found is None:
                raise
            return found

    async def save_chat_context(self, chat_id: str, name: str) -> SavedPoint:
        return await self._threads.save(chat_id, name)

    async def load_chat_context(self, chat_id: str, name: str, *, key: str) -> Thread:
        return await self._moved(chat_id, self._threads.load(chat_id, name, key=key))

    async def undo(self, chat_id: str, *, key: str) -> Thread:
        return await self._moved(chat_id, self._threads.undo(chat_id, key=key))

    async def _moved(self, chat_id: str, moving: Awaitable[Thread]) -> Thread:
        try:
            return await moving
        except KeyReused:
            # It was done in the context to which the room was bound then.
            return await self._threads.find(chat_id)

    async def chat_context(self, chat_id: str) -> Thread | None:
        return await self._threads.get(chat_id)

    async def chat_contexts(self, *, limit: int = 50) -> list[Thread]:
        return list((await self._threads.page(limit=limit)).items)

    async def change_chat_context(self, chat_id: str, changes: ThreadChanges) -> Thread:
        return await self._threads.update(chat_id, changes)

    async def saved_points(self) -> list[SavedPoint]:
        return await self._threads.saved_points()

    async def send_message(self, chat_id: str, text: str, *, key: str, instead_of: str | None = None) -> Turn:
        # The key alone says that it is the same message: the room may be bound to another thread by now.
        turn = await self._store.scoped(self._scope).turn_by_key(check_id("key", key))
        if turn is None:
            replaces = None if instead_of is None else await self._message_id(instead_of)
            request = TurnRequest(
                message=user(text), surface=self._surface, thread_id=chat_id, key=key, replaces=replaces
            )
            accepted = await self._turns.accept(self._scope, request, self._runner.new_lease())
            self._runner.begin(self._scope, accepted, self._approver)
            return accepted.turn
        if turn.is_active:
            self._runner.start(self._scope, turn, self._approver)
        return turn

    async def _message_id(self, message_key: str) -> str:
        turn = await self._store.scoped(self._scope).turn_by_key(check_id("key", message_key))
        asked = None if turn is None else await self._request(turn)
        if asked is None:
            raise NotFound("message", message_key)
        return asked.id

    async def _request(self, turn: Turn) -> Message | None:
        """What was asked, if it still stands where it stood."""
        if turn.request_seq is None:
            return None
        found = await self._threads.messages(turn.thread_id, first=turn.request_seq, last=turn.request_seq)
        return found[0] if found and found[0].turn_id == turn.id else None

    async def is_last(self, chat_id: str, message_key: str) -> bool:
        turn = await self._store.scoped(self._scope).turn_by_key(check_id("key", message_key))
        if turn is None or turn.thread_id != chat_id:
            return False
        last = await self._threads.last_turns(chat_id, 1)
        return bool(last) and last[0].turn_id == turn.id

    async def take_back(self, chat_id: str, message_key: str, *, key: str) -> bool:
        if not await self.is_last(chat_id, message_key):
            return False
        turn = await self._store.scoped(self._scope).turn_by_key(message_key)
        if turn is not None and turn.is_active:
            await self._runner.stop(self._scope, turn.id)
        await self.undo(chat_id, key=key)
        return True

    async def stream_message(self, turn_id: str) -> AsyncIterator[Event]:
        async for streamed in self._streams.read(self._scope, turn_id):
            yield streamed.event

    async def answered(self, turn_id: str) -> Answered:
        turn = await self._turns.find(self._scope, turn_id)
        message = await self._store.scoped(self._scope).message(turn.thread_id, reply_id(turn_id))
        return Answered(turn, message)


def _key_of(chat_id: str | None) -> str | None:
    """Where it can be, a context's id is its state key as well: so it has the same name over HTTP, and whoever moves
    from here to there finds it."""
    return chat_id if chat_id is not None and is_state_key(chat_id) else None

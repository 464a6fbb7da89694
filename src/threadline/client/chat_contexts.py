"""The platform port over HTTP: chat contexts are threads of a service, for one of the users its token acts for.

A context is named by its state key, which is what the routes take. A question is stored under the key it was sent with,
so that it is found again by that; and a turn's id here says which context it belongs to, so that whoever comes back
after a restart needs nothing but the id to read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable

from msgspec import UNSET

from threadline.api_types import ThreadInfo, TurnInfo
from threadline.client.conversion import to_message, to_thread, to_turn
from threadline.client.threads import RemoteThread
from threadline.client.view import Client
from threadline.core.errors import DuplicateId, InvalidInput, KeyReused, NotFound
from threadline.core.events import Event
from threadline.core.ids import check_id
from threadline.core.threads import SavedPoint, Thread, ThreadChanges
from threadline.core.turns import Turn
from threadline.ports import Answered

_OF = "."
"""Between a context and its turn; no state key has one."""
_FIRST_LOOK = 20
_MOST_TURNS = 500


class RemoteChatContexts:
    """`threadline.ports.Platform` for one user; `client` acts for them."""

    def __init__(self, client: Client, user_id: str) -> None:
        self._client = client
        self._user_id = user_id

    async def create_chat_context(self, *, chat_id: str | None = None, title: str | None = None) -> Thread:
        return self._thread(await self._client.create_thread(state_key=chat_id).begin(title=title))

    async def branch_chat_context(
        self, chat_id: str, *, new_chat_id: str | None = None, title: str | None = None
    ) -> Thread:
        try:
            branched = await self._handle(chat_id).branch(title=title, state_key=new_chat_id)
        except DuplicateId:
            found = None if new_chat_id is None else await self.chat_context(new_chat_id)
            if found is None:
                raise
            return found
        return self._thread(branched.info or await branched.refresh())

    async def save_chat_context(self, chat_id: str, name: str) -> SavedPoint:
        return await self._handle(chat_id).save(name)

    async def load_chat_context(self, chat_id: str, name: str, *, key: str) -> Thread:
        thread = self._handle(chat_id)
        return await self._moved(thread, thread.load(name, key=key))

    async def undo(self, chat_id: str, *, key: str) -> Thread:
        thread = self._handle(chat_id)
        return await self._moved(thread, thread.undo(key=key))

    async def _moved(self, thread: RemoteThread, move: Awaitable[None]) -> Thread:
        try:
            await move
        except KeyReused:
            # The key alone says that it was done: the room may be bound to another thread by now.
            await thread.refresh()
        return self._thread(thread.info or await thread.refresh())

    async def chat_context(self, chat_id: str) -> Thread | None:
        try:
            return self._thread(await self._handle(chat_id).refresh())
        except NotFound:
            return None

    async def chat_contexts(self, *, limit: int = 50) -> list[Thread]:
        return [self._thread(info) for info in (await self._client.threads(limit=limit)).items]

    async def change_chat_context(self, chat_id: str, changes: ThreadChanges) -> Thread:
        given = {name: value for name in changes.__struct_fields__ if (value := getattr(changes, name)) is not UNSET}
        if not given.keys() <= {"title", "archived", "metadata"} or None in given.values():
            raise InvalidInput("of a chat with a service, the title, the metadata and its place in the list change")
        thread = self._handle(chat_id)
        await thread.update(**given)
        return self._thread(thread.info or await thread.refresh())

    async def saved_points(self) -> list[SavedPoint]:
        return await self._client.saved_points()

    async def send_message(self, chat_id: str, text: str, *, key: str, instead_of: str | None = None) -> Turn:
        check_id("key", key)
        thread = self._handle(chat_id)
        # To a key that has no thread the service would begin one.
        await thread.refresh()
        try:
            return await self._send(thread, text, key, instead_of)
        except KeyReused as exc:
            # The key alone says that it is the same message: the room may be bound to another thread by now.
            if exc.state_key is None:
                raise
            asked_on = self._handle(exc.state_key)
        try:
            return await self._send(asked_on, text, key, instead_of)
        except KeyReused:
            # What it stood in for was gone, the first time.
            return await self._send(asked_on, text, key, None)

    async def _send(self, thread: RemoteThread, text: str, key: str, instead_of: str | None) -> Turn:
        reply = thread.ask(text, key=key, message_id=key, instead_of=instead_of)
        try:
            await reply.accept()
        finally:
            await reply.close()
        assert reply.turn_id is not None
        return self._turn(thread, await _find(thread, reply.turn_id))

    async def is_last(self, chat_id: str, message_key: str) -> bool:
        return await self._last(self._handle(chat_id), message_key) is not None

    async def _last(self, thread: RemoteThread, message_key: str) -> TurnInfo | None:
        """The turn of this message, if it is the last one of the user's and was asked in this very context: a branch
        shows the messages of its source as well."""
        check_id("key", message_key)
        try:
            newest, turns = await thread.last_turns(1), await thread.turns(limit=_MOST_TURNS)
        except NotFound:
            return None
        if not newest or newest[0].id != message_key:
            return None
        return next((turn for turn in turns if turn.request_seq == newest[0].seq), None)

    async def take_back(self, chat_id: str, message_key: str, *, key: str) -> bool:
        thread = self._handle(chat_id)
        turn = await self._last(thread, message_key)
        if turn is None:
            return False
        if turn.finished_at is None:
            await thread.stop(turn.id)
        await self.undo(chat_id, key=key)
        return True

    async def stream_message(self, turn_id: str) -> AsyncIterator[Event]:
        thread, asked_id = self._handle_of(turn_id)
        async for event in thread.replay(asked_id):
            yield event

    async def answered(self, turn_id: str) -> Answered:
        thread, asked_id = self._handle_of(turn_id)
        found = await _find(thread, asked_id)
        said = [] if found.reply_seq is None else await thread.messages(first=found.reply_seq, last=found.reply_seq)
        # Whoever took the question back took the reply with it: then another message may stand in its place.
        reply = next((each for each in said if each.id.startswith(f"{asked_id}-")), None)
        turn = self._turn(thread, found)
        return Answered(turn, None if reply is None or thread.info is None else to_message(reply, turn, thread.info))

    def _handle(self, chat_id: str) -> RemoteThread:
        return self._client.create_thread(state_key=chat_id)

    def _handle_of(self, turn_id: str) -> tuple[RemoteThread, str]:
        state_key, _, asked_id = turn_id.partition(_OF)
        return self._handle(state_key), check_id("turn", asked_id)

    def _thread(self, info: ThreadInfo) -> Thread:
        return to_thread(info, self._user_id)

    def _turn(self, thread: RemoteThread, found: TurnInfo) -> Turn:
        return to_turn(found, f"{thread.state_key}{_OF}{found.id}", thread.state_key, self._user_id)


async def _find(thread: RemoteThread, turn_id: str) -> TurnInfo:
    for limit in (_FIRST_LOOK, _MOST_TURNS):
        turns = await thread.turns(limit=limit)
        if (found := next((turn for turn in turns if turn.id == turn_id), None)) is not None:
            return found
        if len(turns) < limit:
            break
    raise NotFound("turn", turn_id)

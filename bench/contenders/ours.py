"""Threadline itself, in the two ways it is reached.

`ThreadlineStore` is what the budget is about: a turn as plain values, sealed and appended through the store's port.
`FrontDoor` is the same turn through the public library, with the masker that is on by default.
"""

from __future__ import annotations

from collections.abc import Sequence

import threadline
from bench.arena import Arena
from bench.workload import Turn
from threadline.core.messages import Message, NewMessage, assistant, user
from threadline.core.parts import TextPart, tool
from threadline.core.sealing import Sealed, Sealer
from threadline.core.threads import NewThread, Scope
from threadline.ports import Store
from threadline.stores.postgres.store import PostgresStore
from threadline.stores.sqlite.store import SqliteStore

SCOPE = Scope("bench", "ada")
_PER_APPEND = 2_500


class ThreadlineStore:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.tx = store.scoped(SCOPE)
        self._sealer = Sealer()

    @classmethod
    async def open(cls, place: str) -> ThreadlineStore:
        postgres = place.startswith("postgresql:")
        return cls(await PostgresStore.open(place) if postgres else await SqliteStore.open(place))

    async def start(self, turns: Sequence[Turn]) -> str:
        thread = await self.tx.create_thread(NewThread())
        for first in range(0, len(turns), _PER_APPEND):
            chunk = turns[first : first + _PER_APPEND]
            await self.tx.append(thread.id, [sealed for turn in chunk for sealed in self.seal(turn)])
        await self.rest()
        return thread.id

    async def rest(self) -> None:
        """Waits for what the store still does behind its answers: words of new messages go into the search index."""
        await self.store.index_pending()

    async def append(self, thread_id: str, turn: Turn) -> Sequence[str]:
        return (await self.tx.append(thread_id, self.seal(turn))).message_ids

    async def last_turns(self, thread_id: str, count: int) -> list[Message]:
        return await self.tx.last_turns(thread_id, count)

    def seal(self, turn: Turn) -> list[Sealed]:
        return [self._sealer.message(message) for message in new_messages(turn)]

    async def close(self) -> None:
        await self.store.close()


class FrontDoor:
    def __init__(self, opened: threadline.Threadline) -> None:
        self._opened = opened
        self._user = opened.as_user("ada", tenant="bench")
        self._threads: dict[str, threadline.ThreadHandle] = {}

    @classmethod
    async def open(cls, place: str) -> FrontDoor:
        return cls(await threadline.open(place))

    async def start(self, turns: Sequence[Turn]) -> str:
        thread = await self._user.create_thread()
        self._threads[thread.id] = thread
        for first in range(0, len(turns), _PER_APPEND):
            chunk = turns[first : first + _PER_APPEND]
            await thread.append(*(message for turn in chunk for message in new_messages(turn)))
        await self.rest()
        return thread.id

    async def rest(self) -> None:
        await self._opened.store.index_pending()

    def thread(self, thread_id: str) -> threadline.ThreadHandle:
        return self._threads[thread_id]

    async def append(self, thread_id: str, turn: Turn) -> object:
        return await self._threads[thread_id].append(*new_messages(turn))

    async def last_turns(self, thread_id: str, count: int) -> list[Message]:
        return await self._threads[thread_id].last_turns(count)

    async def close(self) -> None:
        await self._opened.close()


async def place_for_ours(arena: Arena) -> str:
    return str(arena.file("threadline")) if arena.backend == "sqlite" else await arena.database(migrated=True)


def new_messages(turn: Turn) -> tuple[NewMessage, NewMessage]:
    called = tool("web_search", turn.call_id, turn.tool_input, output=turn.tool_output)
    return user(turn.question), assistant((called, TextPart(turn.answer)))

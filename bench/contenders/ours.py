"""Threadline, measured through its public API: what a user calls, with masking and search on.

`ThreadlineStore` is the same append through the store's port: the difference is the library's share of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import threadline
from bench.arena import Arena
from bench.workload import Turn
from threadline.core.messages import Message, NewMessage, assistant, user
from threadline.core.parts import TextPart, tool_part
from threadline.core.sealing import Sealed, Sealer
from threadline.core.threads import NewThread, Scope
from threadline.ports import Store
from threadline.stores.postgres.store import PostgresStore
from threadline.stores.sqlite.store import SqliteStore

SCOPE = Scope("bench", "ada")
_TURNS_PER_APPEND = 2_500


class ThreadlineLibrary:
    def __init__(self, opened: threadline.Threadline) -> None:
        self.opened = opened
        self.user = opened.as_user(SCOPE.user_id, tenant=SCOPE.tenant_id)
        self._threads: dict[str, threadline.ThreadHandle] = {}

    @classmethod
    async def open(cls, place: str) -> ThreadlineLibrary:
        return cls(await threadline.open(place))

    async def start(self, turns: Sequence[Turn]) -> str:
        """Creates a thread that holds these turns; its id."""
        thread = self.add(await self.user.create_thread())
        for first in range(0, len(turns), _TURNS_PER_APPEND):
            chunk = turns[first : first + _TURNS_PER_APPEND]
            await thread.append(*(message for turn in chunk for message in new_messages(turn)))
        await self.rest()
        return thread.id

    def add(self, thread: threadline.ThreadHandle) -> threadline.ThreadHandle:
        self._threads[thread.id] = thread
        return thread

    async def rest(self) -> None:
        """Waits until new messages are in the search index."""
        await self.opened.store.index_pending()

    def thread(self, thread_id: str) -> threadline.ThreadHandle:
        return self._threads[thread_id]

    async def append(self, thread_id: str, turn: Turn) -> Sequence[str]:
        return (await self._threads[thread_id].append(*new_messages(turn))).message_ids

    async def last_turns(self, thread_id: str, count: int) -> list[Message]:
        return await self._threads[thread_id].last_turns(count)

    async def count_message_rows(self) -> int:
        return (await self.opened.store.scoped(SCOPE).row_counts())["messages"]

    async def close(self) -> None:
        await self.opened.close()


class ThreadlineStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._session = store.scoped(SCOPE)
        self._sealer = Sealer()

    @classmethod
    async def open(cls, place: str) -> ThreadlineStore:
        postgres = place.startswith("postgresql:")
        return cls(await PostgresStore.open(place) if postgres else await SqliteStore.open(place))

    async def start(self, turns: Sequence[Turn]) -> str:
        thread = await self._session.create_thread(NewThread())
        for first in range(0, len(turns), _TURNS_PER_APPEND):
            chunk = turns[first : first + _TURNS_PER_APPEND]
            await self._session.append(thread.id, [sealed for turn in chunk for sealed in self._seal(turn)])
        await self.rest()
        return thread.id

    async def rest(self) -> None:
        await self._store.index_pending()

    async def append(self, thread_id: str, turn: Turn) -> Sequence[str]:
        return (await self._session.append(thread_id, self._seal(turn))).message_ids

    async def last_turns(self, thread_id: str, count: int) -> list[Message]:
        return await self._session.last_turns(thread_id, count)

    def _seal(self, turn: Turn) -> list[Sealed]:
        return [self._sealer.message(message) for message in new_messages(turn)]

    async def close(self) -> None:
        await self._store.close()


async def place_for_ours(arena: Arena) -> str:
    return str(arena.file("threadline")) if arena.backend == "sqlite" else await arena.database(migrated=True)


def new_messages(turn: Turn) -> tuple[NewMessage, NewMessage]:
    called = tool_part("web_search", turn.call_id, turn.tool_input, output=turn.tool_output)
    return user(turn.question), assistant((called, TextPart(turn.answer)))

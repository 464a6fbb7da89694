"""The reference on PostgreSQL: bare asyncpg without row security, doing the least that is as durable.

A turn is one prepared statement, so it is one round trip and one implicit transaction: advance the head, insert two
rows. No tenants, no owners, no branches, no search, no idempotency. `append_in_steps` is the same as most people
would write it, BEGIN to COMMIT in four trips.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson

from bench.workload import MESSAGES_PER_TURN, Turn, answer_parts, question_parts

POOL = 10
"""As many connections as Threadline's own pool has, where several tasks work at once."""

_SCHEMA = """
CREATE TABLE threads (id text PRIMARY KEY, message_count bigint NOT NULL, updated_at bigint NOT NULL);
CREATE TABLE messages (
    thread_id text NOT NULL, seq bigint NOT NULL, id text NOT NULL, role text NOT NULL, parts text NOT NULL,
    created_at bigint NOT NULL, PRIMARY KEY (thread_id, seq)
);
CREATE TABLE marks (name text PRIMARY KEY, thread_id text NOT NULL, seq bigint NOT NULL);
"""
_APPEND = """
WITH head AS (
    UPDATE threads SET message_count = message_count + 2, updated_at = $2 WHERE id = $1 RETURNING message_count
)
INSERT INTO messages
SELECT $1, message_count - 2 + place, id, role, parts, $2
FROM head, (VALUES (0, $3, 'user', $4), (1, $5, 'assistant', $6)) AS turn (place, id, role, parts)
"""
_APPEND_ONE = """
WITH head AS (
    UPDATE threads SET message_count = message_count + 1, updated_at = $2 WHERE id = $1 RETURNING message_count
)
INSERT INTO messages SELECT $1, message_count - 1, $3, $4, $5, $2 FROM head
"""
_ADVANCE = """
UPDATE threads SET message_count = message_count + 2, updated_at = $2 WHERE id = $1 RETURNING message_count
"""
_INSERT = "INSERT INTO messages VALUES ($1, $2, $3, $4, $5, $6)"
_LAST = "SELECT seq, id, role, parts, created_at FROM messages WHERE thread_id = $1 ORDER BY seq DESC LIMIT $2"
_ALL = "SELECT seq, id, role, parts, created_at FROM messages WHERE thread_id = $1 ORDER BY seq"
_MARK = "INSERT INTO marks VALUES ($1, $2, $3)"


class BarePostgres:
    """One connection unless told otherwise; statements are prepared once per connection by asyncpg's own cache."""

    def __init__(self, connections: Sequence[asyncpg.Connection]) -> None:
        self._connections = connections
        # asyncpg's own pool resets a connection with one more round trip each time; the least possible does not.
        self._idle: asyncio.LifoQueue[asyncpg.Connection] = asyncio.LifoQueue()
        for connection in connections:
            self._idle.put_nowait(connection)

    @classmethod
    async def open(cls, dsn: str, *, connections: int = 1, create: bool = True) -> BarePostgres:
        opened = [await asyncpg.connect(dsn) for _ in range(connections)]
        if create:
            await opened[0].execute(_SCHEMA)
        return cls(opened)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await self._idle.get()
        try:
            yield connection
        finally:
            self._idle.put_nowait(connection)

    async def start(self, turns: Sequence[Turn]) -> str:
        thread_id = uuid.uuid4().hex
        rows = [
            (thread_id, number * MESSAGES_PER_TURN + place, uuid.uuid4().hex, role, orjson.dumps(parts).decode(), 0)
            for number, turn in enumerate(turns)
            for place, (role, parts) in enumerate(
                (("user", question_parts(turn)), ("assistant", answer_parts(turn))),
            )
        ]
        async with self._connection() as connection:
            await connection.execute("INSERT INTO threads VALUES ($1, $2, 0)", thread_id, len(rows))
            await connection.copy_records_to_table("messages", records=rows)
        return thread_id

    async def append(self, thread_id: str, turn: Turn) -> None:
        question, answer = orjson.dumps(question_parts(turn)), orjson.dumps(answer_parts(turn))
        async with self._connection() as connection:
            await connection.execute(
                _APPEND,
                thread_id,
                time.time_ns() // 1000,
                uuid.uuid4().hex,
                question.decode(),
                uuid.uuid4().hex,
                answer.decode(),
            )

    async def append_in_steps(self, thread_id: str, turn: Turn) -> None:
        now = time.time_ns() // 1000
        question, answer = orjson.dumps(question_parts(turn)), orjson.dumps(answer_parts(turn))
        async with self._connection() as connection, connection.transaction():
            count = await connection.fetchval(_ADVANCE, thread_id, now)
            rows = [
                (thread_id, count - 2, uuid.uuid4().hex, "user", question.decode(), now),
                (thread_id, count - 1, uuid.uuid4().hex, "assistant", answer.decode(), now),
            ]
            await connection.executemany(_INSERT, rows)

    async def last_turns(self, thread_id: str, count: int) -> list[asyncpg.Record]:
        async with self._connection() as connection:
            rows: list[asyncpg.Record] = await connection.fetch(_LAST, thread_id, count * MESSAGES_PER_TURN)
        rows.reverse()
        return rows

    async def last_turns_decoded(self, thread_id: str, count: int) -> list[Any]:
        return [orjson.loads(row[3]) for row in await self.last_turns(thread_id, count)]

    async def whole_decoded(self, thread_id: str) -> list[tuple[Any, ...]]:
        async with self._connection() as connection:
            rows = await connection.fetch(_ALL, thread_id)
        return [(seq, id, role, orjson.loads(parts), at) for seq, id, role, parts, at in rows]

    async def exchange(self, thread_id: str, turn: Turn) -> None:
        """A question and its answer, each durable before the next step."""
        await self._append_one(thread_id, "user", question_parts(turn))
        await self._append_one(thread_id, "assistant", answer_parts(turn)[1:])

    async def append_question(self, thread_id: str, turn: Turn) -> None:
        await self._append_one(thread_id, "user", question_parts(turn))

    async def _append_one(self, thread_id: str, role: str, parts: list[dict[str, Any]]) -> None:
        stored, now = orjson.dumps(parts).decode(), time.time_ns() // 1000
        async with self._connection() as connection:
            await connection.execute(_APPEND_ONE, thread_id, now, uuid.uuid4().hex, role, stored)

    async def mark(self) -> None:
        """One durable row: the least that branching, saving or undoing could cost."""
        async with self._connection() as connection:
            await connection.execute(_MARK, uuid.uuid4().hex, "thread", 1)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

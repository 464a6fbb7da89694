"""What is written by hand most often: the whole thread as one JSON array, read, extended and written back.

On SQLite one row per thread in WAL; on PostgreSQL a jsonb column under SELECT … FOR UPDATE. Both are durable.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import orjson

from bench.contenders.bare_sqlite import connect
from bench.workload import MESSAGES_PER_TURN, Turn, answer_parts, question_parts


class JsonArray:
    """On SQLite."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def start(self, turns: Sequence[Turn]) -> str:
        thread_id = uuid.uuid4().hex
        self._db.execute("INSERT INTO threads VALUES (?, ?)", (thread_id, orjson.dumps(_messages(turns))))
        return thread_id

    async def append(self, thread_id: str, turn: Turn) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        messages = self._read(thread_id)
        messages += _messages([turn])
        self._db.execute("UPDATE threads SET messages = ? WHERE id = ?", (orjson.dumps(messages), thread_id))
        self._db.execute("COMMIT")

    async def last_turns(self, thread_id: str, count: int) -> list[Any]:
        return self._read(thread_id)[-count * MESSAGES_PER_TURN :]

    def _read(self, thread_id: str) -> list[Any]:
        (stored,) = self._db.execute("SELECT messages FROM threads WHERE id = ?", (thread_id,)).fetchone()
        return list(orjson.loads(stored))

    async def close(self) -> None:
        self._db.close()


class JsonbArray:
    """On PostgreSQL."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def start(self, turns: Sequence[Turn]) -> str:
        thread_id = uuid.uuid4().hex
        stored = orjson.dumps(_messages(turns)).decode()
        await self._connection.execute("INSERT INTO threads VALUES ($1, $2)", thread_id, stored)
        return thread_id

    async def append(self, thread_id: str, turn: Turn) -> None:
        async with self._connection.transaction():
            query = "SELECT messages FROM threads WHERE id = $1 FOR UPDATE"
            messages = list(orjson.loads(await self._connection.fetchval(query, thread_id)))
            messages += _messages([turn])
            await self._connection.execute(
                "UPDATE threads SET messages = $1 WHERE id = $2", orjson.dumps(messages).decode(), thread_id
            )

    async def last_turns(self, thread_id: str, count: int) -> list[Any]:
        stored = await self._connection.fetchval("SELECT messages FROM threads WHERE id = $1", thread_id)
        return list(orjson.loads(stored))[-count * MESSAGES_PER_TURN :]

    async def close(self) -> None:
        await self._connection.close()


async def sqlite(path: Path) -> JsonArray:
    db = connect(path)
    db.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, messages TEXT NOT NULL)")
    return JsonArray(db)


async def postgres(dsn: str) -> JsonbArray:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE threads (id text PRIMARY KEY, messages jsonb NOT NULL)")
    return JsonbArray(connection)


def _messages(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for turn in turns:
        found.append({"id": uuid.uuid4().hex, "role": "user", "parts": question_parts(turn)})
        found.append({"id": uuid.uuid4().hex, "role": "assistant", "parts": answer_parts(turn)})
    return found

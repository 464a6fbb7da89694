"""The reference over HTTP: a Starlette app that does the same I/O by hand, and nothing else.

It lists threads, reads one and answers a chat or a request for a response with the same words, with the same commits
and in the same chunks, on the bare driver. There are no tenants, limits, checks, leases, masking or streams that could
be resumed.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.contenders.bare_sqlite import connect
from bench.workload import Turn, answer_parts, question_parts

_SCHEMA = """
CREATE TABLE threads (id TEXT PRIMARY KEY, title TEXT NOT NULL, message_count BIGINT NOT NULL,
    updated_at BIGINT NOT NULL);
CREATE INDEX threads_by_activity ON threads (updated_at DESC);
CREATE TABLE messages (thread_id TEXT NOT NULL, seq BIGINT NOT NULL, id TEXT NOT NULL, role TEXT NOT NULL,
    parts TEXT NOT NULL, PRIMARY KEY (thread_id, seq));
"""
_LIST = "SELECT id, title, message_count, updated_at FROM threads ORDER BY updated_at DESC LIMIT 50"
_Row = Sequence[Any]


class Tables(Protocol):
    async def fill(self, threads: dict[str, list[Turn]]) -> None: ...
    async def listed(self) -> Sequence[_Row]: ...
    async def messages(self, thread_id: str) -> Sequence[_Row]: ...
    async def ask(self, thread_id: str, parts: str) -> None: ...
    async def answer(self, thread_id: str, parts: str) -> None: ...
    async def close(self) -> None: ...


class SqliteTables:
    def __init__(self, path: Path, *, create: bool = True) -> None:
        self._db: sqlite3.Connection = connect(path)
        if create:
            self._db.executescript(_SCHEMA)

    async def fill(self, threads: dict[str, list[Turn]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for thread_id, turns in threads.items():
            row = (thread_id, turns[0].question[:100], 2 * len(turns), _now())
            self._db.execute("INSERT INTO threads VALUES (?, ?, ?, ?)", row)
            self._db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", _rows(thread_id, turns))
        self._db.execute("COMMIT")

    async def listed(self) -> Sequence[_Row]:
        return self._db.execute(_LIST).fetchall()

    async def messages(self, thread_id: str) -> Sequence[_Row]:
        asked = "SELECT id, role, parts FROM messages WHERE thread_id = ? ORDER BY seq"
        return self._db.execute(asked, (thread_id,)).fetchall()

    async def ask(self, thread_id: str, parts: str) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO threads VALUES (?, ?, 1, ?)", (thread_id, parts[:100], _now()))
        self._insert(thread_id, 0, "user", parts)
        self._db.execute("COMMIT")

    async def answer(self, thread_id: str, parts: str) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("UPDATE threads SET message_count = 2, updated_at = ? WHERE id = ?", (_now(), thread_id))
        self._insert(thread_id, 1, "assistant", parts)
        self._db.execute("COMMIT")

    def _insert(self, thread_id: str, seq: int, role: str, parts: str) -> None:
        row = (thread_id, seq, uuid.uuid4().hex, role, parts)
        self._db.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", row)

    async def close(self) -> None:
        self._db.close()


class PostgresTables:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str, *, create: bool = True) -> PostgresTables:
        pool = await asyncpg.create_pool(dsn, min_size=1, max_size=10)
        if create:
            await pool.execute(_SCHEMA)
        return cls(pool)

    async def fill(self, threads: dict[str, list[Turn]]) -> None:
        for thread_id, turns in threads.items():
            row = (thread_id, turns[0].question[:100], 2 * len(turns), _now())
            await self._pool.execute("INSERT INTO threads VALUES ($1, $2, $3, $4)", *row)
            await self._pool.copy_records_to_table("messages", records=_rows(thread_id, turns))

    async def listed(self) -> Sequence[_Row]:
        return await self._pool.fetch(_LIST)

    async def messages(self, thread_id: str) -> Sequence[_Row]:
        asked = "SELECT id, role, parts FROM messages WHERE thread_id = $1 ORDER BY seq"
        return await self._pool.fetch(asked, thread_id)

    async def ask(self, thread_id: str, parts: str) -> None:
        statement = (
            "WITH made AS (INSERT INTO threads VALUES ($1, $2, 1, $3))"
            " INSERT INTO messages VALUES ($1, 0, $4, 'user', $5)"
        )
        await self._pool.execute(statement, thread_id, parts[:100], _now(), uuid.uuid4().hex, parts)

    async def answer(self, thread_id: str, parts: str) -> None:
        statement = (
            "WITH moved AS (UPDATE threads SET message_count = 2, updated_at = $2 WHERE id = $1)"
            " INSERT INTO messages VALUES ($1, 1, $3, 'assistant', $4)"
        )
        await self._pool.execute(statement, thread_id, _now(), uuid.uuid4().hex, parts)

    async def close(self) -> None:
        await self._pool.close()


def bare_app(tables: Tables, deltas: list[str]) -> Starlette:
    """`deltas` are the words of every answer, piece by piece."""

    async def list_threads(request: Request) -> Response:
        keys = ("stateKey", "title", "messageCount", "updatedAt")
        threads = [dict(zip(keys, row, strict=True)) for row in await tables.listed()]
        return _json(orjson.dumps({"threads": threads}))

    async def read(request: Request) -> Response:
        key = request.path_params["key"]
        rows = await tables.messages(key)
        messages = ",".join(f'{{"id":"{id}","role":"{role}","parts":{parts}}}' for id, role, parts in rows)
        return _json(f'{{"stateKey":"{key}","messages":[{messages}]}}'.encode())

    async def chat(request: Request) -> Response:
        message = orjson.loads(await request.body())["message"]
        key = uuid.uuid4().hex
        await tables.ask(key, orjson.dumps(message["parts"]).decode())
        return StreamingResponse(said(key), headers={"content-type": "text/event-stream", "x-state-key": key})

    async def said(key: str) -> AsyncIterator[bytes]:
        yield _frame({"type": "start", "messageId": key}) + _frame({"type": "text-start", "id": "p1"})
        for delta in deltas:
            yield _frame({"type": "text-delta", "id": "p1", "delta": delta})
        await tables.answer(key, orjson.dumps([{"type": "text", "text": "".join(deltas)}]).decode())
        yield _frame({"type": "text-end", "id": "p1"}) + _frame({"type": "finish"}) + b"data: [DONE]\n\n"

    async def respond(request: Request) -> Response:
        question = orjson.loads(await request.body())["input"]
        key, text = uuid.uuid4().hex, "".join(deltas)
        await tables.ask(key, orjson.dumps([{"type": "text", "text": question}]).decode())
        await tables.answer(key, orjson.dumps([{"type": "text", "text": text}]).decode())
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"id": f"msg_{key}", "type": "message", "role": "assistant", "content": content}
        body = {"id": f"resp_{key}", "object": "response", "status": "completed", "output": [item]}
        return _json(orjson.dumps(body))

    return Starlette(
        routes=[
            Route("/api/v1/ai/threads", list_threads),
            Route("/api/v1/ai/threads/{key}", read),
            Route("/api/v1/ai/chat", chat, methods=["POST"]),
            Route("/v1/responses", respond, methods=["POST"]),
        ]
    )


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _frame(chunk: dict[str, str]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _rows(thread_id: str, turns: Sequence[Turn]) -> list[tuple[str, int, str, str, str]]:
    said = itertools.chain.from_iterable(
        (("user", question_parts(turn)), ("assistant", answer_parts(turn))) for turn in turns
    )
    return [
        (thread_id, seq, uuid.uuid4().hex, role, orjson.dumps(parts).decode()) for seq, (role, parts) in enumerate(said)
    ]


def _now() -> int:
    return time.time_ns() // 1000

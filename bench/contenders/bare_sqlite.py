"""The reference on SQLite: the standard library's driver, doing the least that is as durable.

One transaction per turn: BEGIN IMMEDIATE, one UPDATE that advances the head, two INSERTs, COMMIT, under WAL with
synchronous FULL. No tenants, no owners, no branches, no search, no idempotency, called inline without a thread.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from bench.workload import MESSAGES_PER_TURN, Turn, answer_parts, question_parts

Row = tuple[Any, ...]

_SCHEMA = """
CREATE TABLE threads (id TEXT PRIMARY KEY, message_count INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE messages (
    thread_id TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, role TEXT NOT NULL, parts BLOB NOT NULL,
    created_at INTEGER NOT NULL, PRIMARY KEY (thread_id, seq)
);
CREATE TABLE marks (name TEXT PRIMARY KEY, thread_id TEXT NOT NULL, seq INTEGER NOT NULL);
"""
_ADVANCE = "UPDATE threads SET message_count = message_count + ?, updated_at = ? WHERE id = ? RETURNING message_count"
_INSERT = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)"
_LAST = "SELECT seq, id, role, parts, created_at FROM messages WHERE thread_id = ? ORDER BY seq DESC LIMIT ?"
_ALL = "SELECT seq, id, role, parts, created_at FROM messages WHERE thread_id = ? ORDER BY seq"
_MARK = "INSERT INTO marks VALUES (?, ?, ?)"


class BareSqlite:
    def __init__(self, path: Path) -> None:
        self._db = connect(path)
        self._db.executescript(_SCHEMA)

    async def start(self, turns: Sequence[Turn]) -> str:
        thread_id = uuid.uuid4().hex
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO threads VALUES (?, ?, ?)", (thread_id, len(turns) * MESSAGES_PER_TURN, 0))
        self._db.executemany(_INSERT, _numbered(thread_id, turns))
        self._db.execute("COMMIT")
        return thread_id

    async def append(self, thread_id: str, turn: Turn) -> None:
        append(self._db, thread_id, turn)

    async def last_turns(self, thread_id: str, count: int) -> list[Row]:
        rows: list[Row] = self._db.execute(_LAST, (thread_id, count * MESSAGES_PER_TURN)).fetchall()
        rows.reverse()
        return rows

    async def last_turns_decoded(self, thread_id: str, count: int) -> list[Any]:
        return [orjson.loads(row[3]) for row in await self.last_turns(thread_id, count)]

    async def whole_decoded(self, thread_id: str) -> list[Row]:
        rows = self._db.execute(_ALL, (thread_id,))
        return [(seq, id, role, orjson.loads(parts), at) for seq, id, role, parts, at in rows]

    async def exchange(self, thread_id: str, turn: Turn) -> None:
        """A question and its answer, each durable before the next step."""
        _append_one(self._db, thread_id, "user", orjson.dumps(question_parts(turn)))
        _append_one(self._db, thread_id, "assistant", orjson.dumps(answer_parts(turn)[1:]))

    async def append_question(self, thread_id: str, turn: Turn) -> None:
        _append_one(self._db, thread_id, "user", orjson.dumps(question_parts(turn)))

    async def mark(self) -> None:
        """One durable row: the least that branching, saving or undoing could cost."""
        self._db.execute(_MARK, (uuid.uuid4().hex, "thread", 1))

    async def close(self) -> None:
        self._db.close()


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


def append(db: sqlite3.Connection, thread_id: str, turn: Turn) -> None:
    now = time.time_ns() // 1000
    question, answer = orjson.dumps(question_parts(turn)), orjson.dumps(answer_parts(turn))
    db.execute("BEGIN IMMEDIATE")
    (count,) = db.execute(_ADVANCE, (MESSAGES_PER_TURN, now, thread_id)).fetchone()
    db.execute(_INSERT, (thread_id, count - 2, uuid.uuid4().hex, "user", question, now))
    db.execute(_INSERT, (thread_id, count - 1, uuid.uuid4().hex, "assistant", answer, now))
    db.execute("COMMIT")


def _append_one(db: sqlite3.Connection, thread_id: str, role: str, parts: bytes) -> None:
    now = time.time_ns() // 1000
    db.execute("BEGIN IMMEDIATE")
    (count,) = db.execute(_ADVANCE, (1, now, thread_id)).fetchone()
    db.execute(_INSERT, (thread_id, count - 1, uuid.uuid4().hex, role, parts, now))
    db.execute("COMMIT")


def _numbered(thread_id: str, turns: Sequence[Turn]) -> Iterable[Row]:
    for number, turn in enumerate(turns):
        seq = number * MESSAGES_PER_TURN
        yield thread_id, seq, uuid.uuid4().hex, "user", orjson.dumps(question_parts(turn)), 0
        yield thread_id, seq + 1, uuid.uuid4().hex, "assistant", orjson.dumps(answer_parts(turn)), 0

"""Listing threads by their latest activity, against the bare index scan.

The bare table holds the columns a list shows and the one index it needs; its rows are left as the driver gives them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import asyncpg

from bench.arena import Arena
from bench.budgets import LIST, OURS
from bench.cases.references import BARE_SCAN
from bench.contenders.bare_sqlite import connect
from bench.contenders.ours import ThreadlineLibrary, place_for_ours
from bench.measure import Operation, interleave
from bench.results import Row, timings
from bench.workload import turns
from threadline.core.ids import new_id

THREADS = 10_000
PAGE = 50
_DEPTH = 100
_AT_ONCE = 500

_TABLE = """
CREATE TABLE threads (
    id text PRIMARY KEY, owner_id text NOT NULL, state_key text NOT NULL, timeline_id text NOT NULL, title text,
    model text, message_count bigint NOT NULL, token_count bigint NOT NULL, created_at bigint NOT NULL,
    updated_at bigint NOT NULL
)
"""
_INDEX = "CREATE INDEX threads_by_activity ON threads (owner_id, updated_at DESC, id DESC)"
_FIRST_SQLITE = "SELECT * FROM threads WHERE owner_id = ? ORDER BY updated_at DESC, id DESC LIMIT ?"
_NEXT_SQLITE = """
SELECT * FROM threads WHERE owner_id = ? AND (updated_at, id) < (?, ?) ORDER BY updated_at DESC, id DESC LIMIT ?
"""
_FIRST_POSTGRES = "SELECT * FROM threads WHERE owner_id = $1 ORDER BY updated_at DESC, id DESC LIMIT $2"
_NEXT_POSTGRES = """
SELECT * FROM threads WHERE owner_id = $1 AND (updated_at, id) < ($2, $3) ORDER BY updated_at DESC, id DESC LIMIT $4
"""


async def list_threads(arena: Arena) -> list[Row]:
    """50 of 10,000 threads, the first page and one in the middle reached by a cursor, against an index scan of a bare
    table with the same columns. It is what a page of chats shows first, and it must not slow down further back."""
    ours = await ThreadlineLibrary.open(await place_for_ours(arena))
    questions = [turn.question for turn in turns(500)]
    titles = [questions[number % len(questions)][:60] for number in range(THREADS)]
    for done in range(0, THREADS, _AT_ONCE):
        await asyncio.gather(*(_create(ours, title) for title in titles[done : done + _AT_ONCE]))
    cursor = await _cursor_in_the_middle(ours)
    first, middle = await _bare_scans(arena, questions)
    await arena.settle()
    rows: list[Row] = []
    for at, scan, page in (
        ("first page", first, partial(ours.user.threads, limit=PAGE)),
        ("in the middle", middle, partial(ours.user.threads, limit=PAGE, cursor=cursor)),
    ):
        operations: dict[str, Operation] = {BARE_SCAN: scan, OURS: page}
        taken = await interleave(operations, rounds=arena.sized(40, 15), repeats=10, warmup=2)
        rows += timings(LIST, taken, reference=BARE_SCAN, at=at)
    await ours.close()
    return rows


async def _create(ours: ThreadlineLibrary, title: str) -> None:
    await ours.user.create_thread(title=title)


async def _cursor_in_the_middle(ours: ThreadlineLibrary) -> str:
    page = await ours.user.threads(limit=PAGE)
    for _ in range(_DEPTH):
        page = await ours.user.threads(limit=PAGE, cursor=page.next_cursor)
    assert page.next_cursor is not None
    return page.next_cursor


async def _bare_scans(arena: Arena, questions: Sequence[str]) -> tuple[Operation, Operation]:
    records: list[tuple[Any, ...]] = [
        (f"{number:026}", "ada", new_id(), new_id(), questions[number % len(questions)][:60], None, 0, 0, 0, number)
        for number in range(THREADS)
    ]
    middle = THREADS - PAGE * (_DEPTH + 1)
    if arena.backend == "sqlite":
        return _sqlite_scans(arena, records, middle)
    connection = await asyncpg.connect(await arena.database())
    await connection.execute(_TABLE)
    await connection.copy_records_to_table("threads", records=records)
    await connection.execute(_INDEX)
    return (
        partial(connection.fetch, _FIRST_POSTGRES, "ada", PAGE),
        partial(connection.fetch, _NEXT_POSTGRES, "ada", middle, f"{middle:026}", PAGE),
    )


def _sqlite_scans(arena: Arena, records: Sequence[tuple[Any, ...]], middle: int) -> tuple[Operation, Operation]:
    db = connect(arena.file("bare"))
    db.execute(_TABLE)
    db.execute("BEGIN")
    db.executemany("INSERT INTO threads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", records)
    db.execute("COMMIT")
    db.execute(_INDEX)

    async def first() -> list[Any]:
        return db.execute(_FIRST_SQLITE, ("ada", PAGE)).fetchall()

    async def following() -> list[Any]:
        return db.execute(_NEXT_SQLITE, ("ada", middle, f"{middle:026}", PAGE)).fetchall()

    return first, following

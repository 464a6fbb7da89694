"""Space: bytes on disk for each byte of payload, and memory while a long thread streams by.

The payload is the JSON of the parts; everything else in the database is overhead. Search has its own line.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import apsw
import asyncpg

from bench.arena import Arena
from bench.budgets import DISK, MEMORY, OURS
from bench.children import Child, StreamOrder, StreamReport
from bench.contenders.ours import ThreadlineLibrary, new_messages, place_for_ours
from bench.results import Row
from bench.workload import MESSAGES_PER_TURN, turns
from threadline.core.parts import encode


async def disk(arena: Arena) -> list[Row]:
    """10,000 messages appended turn by turn: what the database takes on disk, its search index counted apart, for
    each byte of message parts. History is kept for ever, so what is added to each message is paid for ever."""
    place = await place_for_ours(arena)
    ours = await ThreadlineLibrary.open(place)
    count = arena.sized(5_000, 1_000)
    thread_id = await ours.start([])
    payload = 0
    for turn in itertools.islice(itertools.cycle(turns(2_000)), count):
        payload += sum(len(encode(message.parts)) for message in new_messages(turn))
        await ours.append(thread_id, turn)
    await ours.rest()
    await ours.close()
    sizes = _sqlite_sizes(place) if arena.backend == "sqlite" else await _postgres_sizes(arena.admin_dsn(place))
    return [
        Row(DISK.name, OURS, "bytes", sizes.kept / payload),
        Row(DISK.name, "Threadline, the search index alone", "bytes", sizes.search / payload),
        Row(DISK.name, "Threadline, a message", "bytes", sizes.kept / (count * MESSAGES_PER_TURN)),
    ]


async def memory(arena: Arena) -> list[Row]:
    """The peak of a process that streams a thread of 100,000 messages and looks at every part, Python included.
    An export or a migration of the longest thread must not need a larger machine."""
    place = await place_for_ours(arena)
    ours = await ThreadlineLibrary.open(place)
    length = arena.sized(100_000, 10_000)
    filling = list(itertools.islice(itertools.cycle(turns(1_000)), length // MESSAGES_PER_TURN))
    thread_id = await ours.start(filling)
    await ours.close()
    child = await Child.start("stream", StreamOrder(place, thread_id))
    report = await child.report(StreamReport)
    if report.messages != length:
        raise RuntimeError(f"streamed {report.messages} of {length} messages")
    at = f"{length:,} messages"
    return [
        Row(MEMORY.name, OURS, "MB", report.peak_megabytes, at=at),
        Row(MEMORY.name, "Threadline, opened and idle", "MB", report.megabytes_before, at=at),
    ]


class Sizes(NamedTuple):
    kept: int
    search: int


def _sqlite_sizes(path: str) -> Sizes:
    """The store is closed, so nothing else of this process holds the file."""
    db = apsw.Connection(path)
    sizes: list[tuple[Any, ...]] = db.execute("""
        SELECT pgsize, EXISTS (
            SELECT 1 FROM sqlite_schema AS indexing
            WHERE indexing.sql LIKE 'CREATE VIRTUAL TABLE%fts5%' AND dbstat.name GLOB indexing.name || '_*'
        )
        FROM dbstat WHERE aggregate = TRUE
    """).fetchall()
    db.close()
    return Sizes(
        kept=sum(size for size, is_search in sizes if not is_search),
        search=sum(size for size, is_search in sizes if is_search),
    )


async def _postgres_sizes(dsn: str) -> Sizes:
    connection = await asyncpg.connect(dsn)
    await connection.execute("VACUUM")
    rows = await connection.fetch("""
        SELECT relation.relname::text, pg_relation_size(relation.oid) + coalesce(pg_total_relation_size(toast.oid), 0)
        FROM pg_class AS relation
        JOIN pg_namespace AS namespace ON namespace.oid = relation.relnamespace
        LEFT JOIN pg_class AS toast ON toast.oid = relation.reltoastrelid
        WHERE relation.relkind IN ('r', 'i') AND namespace.nspname = 'threadline'
    """)
    await connection.close()
    search = sum(size for name, size in rows if "search" in name)
    return Sizes(sum(size for _, size in rows) - search, search)

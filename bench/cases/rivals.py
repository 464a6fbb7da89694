"""Who carries a crowd: the bare drivers in the ways they are used under load, and Threadline.

On SQLite the reference is a connection and a thread for each task; one connection for all tasks, called inline, is
measured beside it. On PostgreSQL the reference shares as many connections as Threadline's own pool has.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.arena import Arena
from bench.budgets import OURS
from bench.cases.references import BARE, BARE_PER_TASK, BARE_SHARED
from bench.contenders.bare_postgres import POOL, BarePostgres
from bench.contenders.bare_sqlite import BareSqlite
from bench.contenders.bare_sqlite_crowd import BareSqliteCrowd
from bench.contenders.ours import ThreadlineLibrary, place_for_ours
from bench.crowds import TASKS, Append


class Rival(NamedTuple):
    name: str
    append: Append
    thread_ids: list[str]
    place: str | None
    """Where other processes find its database; None for one that makes no sense in several."""
    store: ThreadlineLibrary | None = None


async def open_rivals(arena: Arena, *, threads: int) -> list[Rival]:
    """The reference first, Threadline last, each with so many empty threads."""
    bare = await (_bare_sqlite(arena, threads) if arena.backend == "sqlite" else _bare_postgres(arena, threads))
    place = await place_for_ours(arena)
    ours = await ThreadlineLibrary.open(place)
    thread_ids = [await ours.start([]) for _ in range(threads)]
    return [*bare, Rival(OURS, ours.append, thread_ids, place, ours)]


async def _bare_sqlite(arena: Arena, threads: int) -> list[Rival]:
    path, shared_path = arena.file("bare"), arena.file("bare-shared")
    setup, shared = BareSqlite(path), BareSqlite(shared_path)
    crowd = BareSqliteCrowd(path, TASKS)
    return [
        Rival(BARE_PER_TASK, crowd.append, [await setup.start([]) for _ in range(threads)], str(path)),
        Rival(BARE_SHARED, shared.append, [await shared.start([]) for _ in range(threads)], None),
    ]


async def _bare_postgres(arena: Arena, threads: int) -> list[Rival]:
    dsn = await arena.database()
    bare = await BarePostgres.open(dsn, connections=POOL)
    return [Rival(BARE, bare.append, [await bare.start([]) for _ in range(threads)], dsn)]

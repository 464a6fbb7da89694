"""The names of those Threadline is compared with, and how a case opens the bare driver of its database.

The names appear in results and tables, so each is spelled in one place.
"""

from __future__ import annotations

from bench.arena import Arena
from bench.contenders.bare_postgres import BarePostgres
from bench.contenders.bare_sqlite import BareSqlite

BARE = "bare driver"
BARE_PER_TASK = "bare driver, a connection per task"
BARE_SHARED = "bare driver, one connection for all"
BARE_IN_STEPS = "bare driver, BEGIN to COMMIT in steps"
BARE_COMMIT = "one bare commit"
BARE_COMMITS = "two bare commits"
BARE_ROW = "one durable one-row insert"
BARE_SCAN = "bare index scan"
STORE_PORT = "Threadline, through the store alone"
BARE_DECODED = "bare driver and orjson"
OURS_DECODED = "Threadline, every part decoded"


async def open_bare(arena: Arena, *, connections: int = 1) -> BareSqlite | BarePostgres:
    if arena.backend == "sqlite":
        return BareSqlite(arena.file("bare"))
    return await BarePostgres.open(await arena.database(), connections=connections)

"""Turns that ended before usage was counted are counted by the migration."""

from __future__ import annotations

import datetime as dt

from tests.stores.postgres.test_migrations import ALICE, OLD_DATA, run
from threadline.core.usage import UsageQuery
from threadline.stores.postgres import migrate
from threadline.stores.postgres.migrate import MIGRATIONS
from threadline.stores.postgres.store import PostgresStore

OLD_TURNS = """
    INSERT INTO threadline.turns
        (tenant_id, id, owner_id, thread_id, surface, agent_id, status, usage, created_at, finished_at)
    VALUES ('a', 't0', 'alice', 'old', 'web', 'helper', 'executed', '{"input_tokens":10,"output_tokens":1}', now(),
            '2026-11-14T23:59:59Z'),
        ('a', 't1', 'alice', 'old', 'web', 'helper', 'executed', '{"input_tokens":5}', now(), '2026-11-15T00:00:00Z'),
        ('a', 't2', 'alice', 'old', 'web', 'helper', 'executed',
            '{"input_tokens":1000000000000000000000000000000}', now(), '2026-11-15T12:00:00Z'),
        ('a', 't3', 'alice', 'old', 'web', 'helper', 'running', NULL, now(), NULL);
"""


async def test_turns_of_version_sixteen_are_counted(empty_dsn: str) -> None:
    await migrate.apply(empty_dsn, known=MIGRATIONS[:16])
    await run(empty_dsn, OLD_DATA + OLD_TURNS)
    await migrate.apply(empty_dsn)
    store = await PostgresStore.open(empty_dsn)
    query = UsageQuery(by=("day", "agent", "model"), first_day=dt.date(2026, 1, 1), last_day=dt.date(2027, 1, 1))
    found = await store.scoped(ALICE).usage(query)
    assert [(row.day, row.agent_id, row.model, row.turns, row.input_tokens) for row in found] == [
        (dt.date(2026, 11, 14), "helper", None, 1, 10),
        (dt.date(2026, 11, 15), "helper", None, 2, 1_000_000_005),
    ]
    await store.close()

"""What `check` finds in a damaged or edited file."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from threadline.core.threads import NewThread, Scope
from threadline.stores.sqlite.migrate import MIGRATIONS
from threadline.testing.conformance.message_builders import create_thread_with

FAULTS = {
    "wrong message count": "UPDATE threads SET message_count = message_count + 1",
    "timelines have gaps": "DELETE FROM messages WHERE seq = 1",
    "timeline of another thread": "UPDATE threads SET timeline_id = 'another'",
    "a thread or a parent that does not exist": "UPDATE timelines SET thread_no = 77 WHERE base_no IS NOT NULL",
    "a parent that does not exist": "UPDATE timelines SET base_no = 77 WHERE base_no IS NOT NULL",
    "refer to a thread": "UPDATE threads SET newest_timeline_no = 77",
    "refer to rows that do not exist": "DELETE FROM users",
    "schema version": "PRAGMA user_version = 77",
}


@pytest.mark.parametrize(("found", "fault"), FAULTS.items(), ids=FAULTS.keys())
async def test_every_fault_is_found_and_named(path: Path, open_sqlite: OpenSqlite, found: str, fault: str) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    thread = await create_thread_with(tx, "a", "b", "c")
    await tx.branch(thread.id, NewThread(), at=1)
    assert await store.check() == []
    editing = apsw.Connection(str(path))
    editing.execute(fault)
    editing.close()
    findings = await store.check()
    assert any(found in finding.what for finding in findings)
    assert all(finding.level == "error" and finding.remedy for finding in findings)


async def test_statistics_include_size_and_version(open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    before = await store.statistics()
    await create_thread_with(store.scoped(Scope()), *("word " * 1_000 for _ in range(50)))
    after = await store.statistics()
    assert after["bytes"] > before["bytes"] > 100_000
    assert after["schema_version"] == len(MIGRATIONS)

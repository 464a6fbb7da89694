"""What a doctor finds in a file that somebody else has been at."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from threadline.core.threads import NewThread, Scope
from threadline.stores.sqlite.migrate import MIGRATIONS
from threadline.testing.conformance.message_builders import create_thread_with

WRONGS = {
    "threads miscount": "UPDATE threads SET message_count = message_count + 1",
    "timelines have gaps": "DELETE FROM messages WHERE seq = 1",
    "not theirs": "UPDATE threads SET timeline_id = 'another'",
    "lost their thread": "UPDATE timelines SET thread_no = 77 WHERE base_no IS NOT NULL",
    "what they stem from": "UPDATE timelines SET base_no = 77 WHERE base_no IS NOT NULL",
    "have lost": "UPDATE threads SET newest_timeline_no = 77",
    "refer to rows that are gone": "DELETE FROM users",
    "schema version": "PRAGMA user_version = 77",
}


@pytest.mark.parametrize(("found", "wrong"), WRONGS.items(), ids=WRONGS.keys())
async def test_a_wrong_is_found_and_named(path: Path, open_sqlite: OpenSqlite, found: str, wrong: str) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    thread = await create_thread_with(tx, "a", "b", "c")
    await tx.branch(thread.id, NewThread(), at=1)
    assert await store.check() == []
    meddling = apsw.Connection(str(path))
    meddling.execute(wrong)
    meddling.close()
    findings = await store.check()
    assert any(found in finding.what for finding in findings)
    assert all(finding.level == "error" and finding.remedy for finding in findings)


async def test_statistics_tell_size_and_version(open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    before = await store.statistics()
    await create_thread_with(store.scoped(Scope()), *("word " * 1_000 for _ in range(50)))
    after = await store.statistics()
    assert after["bytes"] > before["bytes"] > 100_000
    assert after["schema_version"] == len(MIGRATIONS)

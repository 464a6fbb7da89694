"""Purging down to the bytes: no file of the database holds a purged word, while everything else is as it was."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import apsw
import pytest

from tests.stores.sqlite.conftest import OpenSqlite
from tests.stores.sqlite.disk import Disk
from threadline.core.channels import Agent
from threadline.core.threads import NewThread, Scope, ThreadChanges, system_scope
from threadline.ports import Transaction
from threadline.stores.sqlite import connection, group_commit, writer
from threadline.stores.sqlite.connection import PAGE_SIZE
from threadline.stores.sqlite.store import SqliteStore
from threadline.testing.conformance.message_builders import clean_text, create_thread_with, exchange, history

LETTERS = "bcdfghjklmnpqrstvwxz"
END = 8
ENDS = re.compile(f"(?=([{LETTERS}]{{{END}}}))".encode())


class Speaker:
    """Generates long texts of unique words, and remembers all of them."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._chance = random.Random(seed)
        self.words: set[str] = set()

    def text(self, count: int) -> str:
        said = [self._name + "".join(self._chance.choices(LETTERS, k=10)) for _ in range(count)]
        self.words.update(said)
        return " ".join(said)

    def exchange(self) -> list[str]:
        return [self.text(self._chance.randint(3, 60)), self.text(self._chance.randint(3, 300))]


def left_in(path: Path, words: set[str]) -> set[str]:
    """Which of the words the database, its log or the log's index hold. The ends of words are looked for, because the
    search index leaves out what a word has in common with the one before it."""
    files = [Path(f"{path}{ending}") for ending in ("", "-wal", "-shm")]
    found = ends_in(b"".join(file.read_bytes() for file in files if file.exists()))
    return {word for word in words if word[-END:] in found}


def ends_in(data: bytes) -> set[str]:
    return {match[1].decode() for match in ENDS.finditer(data)}


def pages_of(path: Path, table: str) -> bytes:
    """The pages of a table in a file that no store has open."""
    looking = apsw.Connection(str(path))
    numbers = [number for (number,) in looking.execute("SELECT pageno FROM dbstat WHERE name = ?", (table,))]
    looking.close()
    data = path.read_bytes()
    return b"".join(data[(number - 1) * PAGE_SIZE : number * PAGE_SIZE] for number in numbers)


def size_of(path: Path) -> int:
    return path.stat().st_size


async def speak(tx: Transaction, speaker: Speaker, threads: int, turns: int) -> list[str]:
    ids = [(await create_thread_with(tx, new=NewThread(title=speaker.text(3)))).id for _ in range(threads)]
    for _ in range(turns):
        for thread_id in ids:
            await tx.append(thread_id, exchange(*speaker.exchange()))
    return ids


@pytest.mark.req("SX-03")
@pytest.mark.parametrize("indexed", [True, False])
async def test_no_byte_of_a_purged_thread_is_left(path: Path, open_sqlite: OpenSqlite, indexed: bool) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    gone, kept = Speaker("aa", 1), Speaker("ee", 2)
    going = await speak(tx, gone, threads=3, turns=8)
    staying = await speak(tx, kept, threads=3, turns=8)
    if indexed:
        await store.index_pending()
    before = [await tx.messages(thread_id) for thread_id in staying]
    for thread_id in going:
        await tx.purge_thread(thread_id)
    assert left_in(path, gone.words) == set()
    assert [await tx.messages(thread_id) for thread_id in staying] == before
    assert len(await tx.search(next(iter(kept.words)))) <= 1
    assert await store.check() == []


@pytest.mark.req("SX-03")
async def test_no_byte_of_a_purged_user_is_left(path: Path, open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    system = store.scoped(system_scope("local"))
    speakers = {name: Speaker(name, seed) for seed, name in enumerate(("aa", "ee", "ii"))}
    for _ in range(2):
        for name, speaker in speakers.items():
            tx = store.scoped(Scope("local", name))
            ids = await speak(tx, speaker, threads=2, turns=5)
            await tx.set_context("helper", clean_text(speaker.text(300)))
            await tx.update_thread(ids[0], ThreadChanges(system_prompt=speaker.text(500)))
            await tx.bind("matrix", speaker.text(1), ids[0], label=speaker.text(2))
            await system.enqueue("slack", speaker.text(1), clean_text(speaker.text(50)), turn_id=None, owner_id=name)
            await system.claim_inbox("slack", speaker.text(1), fingerprint=speaker.text(2), owner_id=name)
            await tx.put_summary(ids[1], 2, clean_text(speaker.text(80)))
            await tx.save(ids[1], speaker.text(1))
    await system.put_agent(Agent("helper", "Helper", "rehearsal"))
    await store.index_pending()
    for name, speaker in speakers.items():
        await system.purge_user(name)
        assert left_in(path, speaker.words) == set()
    assert set((await system.row_counts()).values()) <= {0, 1}
    assert await store.check() == []


@pytest.mark.req("SX-03")
async def test_a_purge_waits_for_a_log_that_is_on_its_way(
    disk: Disk, path: Path, open_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_SCRUB_SECONDS", 0.0)
    monkeypatch.setattr(writer, "_LONG_PAGES", 5)
    store = await open_sqlite()
    tx = store.scoped(Scope())
    disk.slow_thread = "threadline-checkpoints"
    gone = Speaker("aa", 1)
    (thread_id,) = await speak(tx, gone, threads=1, turns=3)
    assert await asyncio.to_thread(disk.is_waiting.wait, 30)
    purging = asyncio.create_task(tx.purge_thread(thread_id))
    # One that does not wait is done, and has left everything in the log.
    await asyncio.wait({purging}, timeout=0.5)
    disk.answers.set()
    async with asyncio.timeout(30):
        assert await purging
    assert left_in(path, gone.words) == set()


async def test_what_a_branch_shows_stays_though_its_threads_went_back_and_forth(open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    first = await create_thread_with(tx, "one", "1", "two", "2", "three", "3")
    second = await tx.branch(first.id, NewThread())
    await tx.append(second.id, exchange("four", "4"))
    await tx.undo(second.id)
    await tx.undo(second.id)
    third = await tx.branch(second.id, NewThread())
    await tx.save(second.id, "here")
    fourth = await create_thread_with(tx, "elsewhere", "0")
    await tx.load(fourth.id, "here")
    await tx.undo(fourth.id)
    await tx.append(fourth.id, exchange("six", "6"))
    for going in (second, first):
        assert await tx.purge_thread(going.id)
        assert await store.check() == []
        assert await history(tx, third.id) == ["one", "1", "two", "2"]
        assert await history(tx, fourth.id) == ["one", "1", "six", "6"]
    assert [hit.thread_id for hit in await tx.search("two")] == [third.id]
    assert {hit.thread_id for hit in await tx.search("one")} <= {third.id, fourth.id}
    assert await tx.search("three") == await tx.search("four") == []
    for going in (third, fourth):
        assert await tx.purge_thread(going.id)
    assert set((await tx.row_counts()).values()) <= {0, 1}
    assert await store.check() == []


async def test_what_a_branch_still_shows_is_all_that_is_left(path: Path, open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    speaker = Speaker("aa", 1)
    shown, hidden = [speaker.text(40), speaker.text(40)], [speaker.text(40), speaker.text(40)]
    source = await create_thread_with(tx, *shown, *hidden)
    branch = await tx.branch(source.id, NewThread(), at=1)
    await store.index_pending()
    await tx.purge_thread(source.id)
    assert await history(tx, branch.id) == shown
    assert left_in(path, speaker.words) == set(" ".join(shown).split())
    assert len(await tx.search(shown[0].split()[7])) == 1


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats every file as too large to be rewritten after a purge."""
    monkeypatch.setattr(group_commit, "_VACUUM_BYTES", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", [4, 6, 18])
async def test_what_is_purged_at_once_is_blank_before_rows_move(path: Path, open_sqlite: OpenSqlite, seed: int) -> None:
    """With these seeds SQLite moves rows that are about to be purged, and leaves copies of them behind."""
    store = await open_sqlite()
    gone, kept = Speaker("aa", seed), Speaker("ee", 100 + seed)
    for _ in range(4):
        await speak(store.scoped(Scope("local", "gone")), gone, threads=2, turns=3)
        await speak(store.scoped(Scope("local", "kept")), kept, threads=2, turns=3)
    await store.scoped(Scope("local", "gone")).purge_user("gone")
    await store.close()
    assert ends_in(pages_of(path, "messages")).isdisjoint(word[-END:] for word in gone.words)


@pytest.mark.usefixtures("large")
async def test_in_a_large_file_nothing_is_left_once_it_is_compacted(path: Path, open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    speakers = [Speaker(name, seed) for seed, name in enumerate(("aa", "ee", "ii"))]
    threads = [await speak(tx, speaker, threads=2, turns=10) for speaker in speakers]
    await store.index_pending()
    for speaker, ids in zip(speakers, threads, strict=True):
        for thread_id in ids:
            await tx.purge_thread(thread_id)
        # Rows, index entries and free pages keep nothing; only unused parts of pages may.
        assert len(left_in(path, speaker.words)) < len(speaker.words) / 20
    size = size_of(path)
    await store.compact()
    assert left_in(path, set().union(*(speaker.words for speaker in speakers))) == set()
    assert size_of(path) < size


@pytest.mark.parametrize("share", [1, 1_000_000])
async def test_words_leave_the_index_however_many_go(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    """Few messages are removed one by one; for many, the index is rebuilt. The result is the same."""
    monkeypatch.setattr("threadline.stores.sqlite.search._CUT_SHARE", share)
    tx = store.scoped(Scope())
    going, staying = (
        await create_thread_with(tx, "a zebra", "a lion"),
        await create_thread_with(tx, "a zebra", "a giraffe"),
    )
    await store.index_pending()
    await tx.purge_thread(going.id)
    assert {hit.thread_id for hit in await tx.search("zebra")} == {staying.id}
    assert await tx.search("lion") == []
    assert len(await tx.search("giraffe")) == 1
    new = await create_thread_with(tx, "a lion again")
    assert {hit.thread_id for hit in await tx.search("lion")} == {new.id}


async def test_a_number_that_is_given_again_is_indexed_again(store: SqliteStore) -> None:
    tx = store.scoped(Scope())
    for word in ("zebra", "lion", "giraffe"):
        thread = await create_thread_with(tx, f"a {word}", f"the {word}")
        assert len(await tx.search(word)) == 2
        await tx.purge_thread(thread.id)
        assert await tx.search(word) == []


async def test_a_reader_elsewhere_does_not_hold_a_purge_up(path: Path, open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    tx = store.scoped(Scope())
    speaker = Speaker("aa", 1)
    thread = await create_thread_with(tx, speaker.text(100))
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT * FROM messages").fetchall()
    assert await tx.purge_thread(thread.id)
    reader.execute("COMMIT")
    reader.close()
    assert (await tx.row_counts())["messages"] == 0
    await store.compact()
    assert left_in(path, speaker.words) == set()

"""Backups: one moment of a busy database, whole or not there, and restored into an empty database of either kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import open_database
from tests.threads.test_database_copy import populate, rows_of
from threadline.core.errors import Conflict, InvalidInput
from threadline.core.portable import ADDED_COLUMNS, TABLES
from threadline.core.threads import Scope
from threadline.ports import Store
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.message_builders import create_thread_with, exchange, history
from threadline.testing.postgres import shared_server
from threadline.threads import backup_format
from threadline.threads.backup import check_backup, restore_backup, write_backup
from threadline.vault import Vault, new_key

WRITERS = 64


@pytest.fixture(params=["file", "postgres"])
async def source(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    async for store in open_kind(request.param, tmp_path / "source.db", clock):
        yield store


@pytest.fixture(params=["file", "postgres"])
async def target(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    async for store in open_kind(request.param, tmp_path / "target.db", clock):
        yield store


@pytest.fixture
async def file_store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    async for store in open_kind("file", tmp_path / "file.db", clock):
        yield store


async def open_kind(kind: str, path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    """A database of its own: a backup is of all tenants."""
    address = str(path) if kind == "file" else await shared_server().create_database()
    store = await open_database(address, clock=clock)
    yield store
    await store.close()
    if kind == "postgres":
        await shared_server().drop_database(address)


async def restore(path: Path, store: Store, cipher: Vault | None = None) -> dict[str, int]:
    return await restore_backup(path, check_backup(path, cipher=cipher), store, cipher=cipher)


@pytest.mark.req("K-01")
async def test_a_restored_database_has_the_same_rows(
    source: Store, target: Store, tmp_path: Path, clock: ManualClock
) -> None:
    for tenant_id in ("first", "second"):
        await populate(source, tenant_id, clock)
    reports: list[int] = []
    path = tmp_path / "all.backup"
    written = await write_backup(source, path, progress=lambda done, total: reports.append(done))
    assert path.stat().st_mode & 0o077 == 0
    assert await restore(path, target) == written
    for tenant_id in ("first", "second"):
        assert await rows_of(target, tenant_id) == await rows_of(source, tenant_id)
    assert all(written.values()), "a backup has every table"
    assert reports == sorted(reports)
    assert await target.check() == []
    assert len(await target.scoped(Scope("first", "ada")).search("kept branch")) == 1


@pytest.mark.req("K-01")
async def test_a_backup_is_one_moment_while_64_writers_append(source: Store, file_store: Store, tmp_path: Path) -> None:
    """Each writer appends to its first thread and then to its second, so at any moment the first is ahead by one
    exchange or by none."""
    begun, done = asyncio.Event(), asyncio.Event()
    pairs = []

    async def write(number: int) -> None:
        tx = source.scoped(Scope("busy", f"writer-{number}"))
        first, second = await create_thread_with(tx), await create_thread_with(tx)
        pairs.append((tx.scope, first.id, second.id))
        if len(pairs) == WRITERS:
            begun.set()
        while not done.is_set():
            await tx.append(first.id, exchange("a", "b"))
            await tx.append(second.id, exchange("a", "b"))

    writers = [asyncio.create_task(write(number)) for number in range(WRITERS)]
    await begun.wait()
    path = tmp_path / "busy.backup"
    written = await write_backup(source, path)
    done.set()
    await asyncio.gather(*writers)
    assert await restore(path, file_store) == written
    later = 0
    for scope, first, second in pairs:
        before, now = file_store.scoped(scope), source.scoped(scope)
        counts = [len(await history(before, thread)) for thread in (first, second)]
        assert counts[0] - counts[1] in (0, 2)
        assert (await history(now, first))[: counts[0]] == await history(before, first)
        later += len(await history(now, first)) - counts[0]
    assert later > 0, "the writers continued during the backup"
    assert await file_store.check() == []


@pytest.mark.req("K-01")
async def test_an_encrypted_backup_needs_its_key_and_shows_nothing(
    file_store: Store, target: Store, tmp_path: Path
) -> None:
    await create_thread_with(file_store.scoped(Scope("acme", "ada")), "a readable sentence")
    key = Vault({backup_format.KEY_ID: new_key()})
    path = tmp_path / "encrypted.backup"
    await write_backup(file_store, path, cipher=key)
    assert b"acme" not in path.read_bytes()
    with pytest.raises(InvalidInput, match="is encrypted: give the file of its key with --key-file"):
        check_backup(path)
    with pytest.raises(InvalidInput, match="damaged, or was encrypted with another key"):
        check_backup(path, cipher=Vault({backup_format.KEY_ID: new_key()}))
    await restore(path, target, key)
    assert await rows_of(target, "acme") == await rows_of(file_store, "acme")


@pytest.mark.req("K-01")
async def test_a_backup_with_any_missing_or_changed_byte_is_refused(file_store: Store, tmp_path: Path) -> None:
    await create_thread_with(file_store.scoped(Scope("acme", "ada")), "hello", "hello back")
    path, damaged = tmp_path / "good.backup", tmp_path / "damaged.backup"
    await write_backup(file_store, path)
    good = path.read_bytes()
    # Every byte of the beginning and the end, some of those between.
    places = [*range(40), *range(40, len(good) - 80, 29), *range(len(good) - 80, len(good))]
    for length in places:
        damaged.write_bytes(good[:length])
        with pytest.raises(InvalidInput, match=r"not complete|not a backup|damaged"):
            check_backup(damaged)
    for at in places:
        damaged.write_bytes(good[:at] + bytes([good[at] ^ 0x20]) + good[at + 1 :])
        with pytest.raises(InvalidInput):
            check_backup(damaged)
    damaged.write_bytes(good + b"x")
    with pytest.raises(InvalidInput, match="damaged"):
        check_backup(damaged)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"SQLite format 3\0" + bytes(200), b"PGDMP" + bytes(200), b"threadline backup\n"):
        path = tmp_path / "foreign"
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"is not a backup made by|is not complete"):
            check_backup(path)
    with pytest.raises(InvalidInput, match=r"cannot read .*missing: No such file"):
        check_backup(tmp_path / "missing")


@pytest.mark.req("K-01")
async def test_a_database_with_data_is_left_as_it_is(file_store: Store, target: Store, tmp_path: Path) -> None:
    await create_thread_with(file_store.scoped(Scope("acme", "ada")), "from the backup")
    await create_thread_with(target.scoped(Scope("other", "bob")), "there before")
    before = await rows_of(target, "other")
    path = tmp_path / "all.backup"
    await write_backup(file_store, path)
    with pytest.raises(Conflict, match="the database is not empty, and nothing was changed: restore into a new one"):
        await restore(path, target)
    assert await target.tenants() == ["other"]
    assert await rows_of(target, "other") == before


@pytest.mark.req("K-01")
async def test_a_restore_that_breaks_off_leaves_nothing(
    file_store: Store, target: Store, tmp_path: Path, clock: ManualClock
) -> None:
    await populate(file_store, "acme", clock)
    path = tmp_path / "all.backup"
    await write_backup(file_store, path)

    def fail(done: int, total: int | None) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await restore_backup(path, check_backup(path), target, progress=fail)
    assert await target.tenants() == []
    await restore(path, target)
    assert await rows_of(target, "acme") == await rows_of(file_store, "acme")


async def test_a_backup_that_breaks_off_leaves_no_file(file_store: Store, tmp_path: Path) -> None:
    await create_thread_with(file_store.scoped(Scope("acme", "ada")), "hello")
    folder = tmp_path / "backups"
    folder.mkdir()

    def fail(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await write_backup(file_store, folder / "all.backup", progress=fail)
    assert list(folder.iterdir()) == []
    taken = folder / "all.backup"
    taken.write_text("mine")
    with pytest.raises(InvalidInput, match="exists: choose a new name for the backup"):
        await write_backup(file_store, taken)
    assert taken.read_text() == "mine"


class TestOtherVersions:
    @pytest.fixture
    async def path(self, file_store: Store, tmp_path: Path) -> Path:
        await create_thread_with(file_store.scoped(Scope("acme", "ada")), "hello")
        return tmp_path / "other.backup"

    async def test_a_file_with_an_unknown_column_is_from_a_newer_program(
        self, file_store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as newer:
            newer.setitem(TABLES, "saved_points", (*TABLES["saved_points"], "colour"))
            await write_backup(file_store, path)
        with pytest.raises(InvalidInput, match=r"newer threadline .*saved_points\.colour.*install that version"):
            check_backup(path)

    async def test_a_file_of_another_format_names_the_version_to_use(
        self, file_store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in (0, 2):
            other_path = path.with_suffix(f".{number}")
            with monkeypatch.context() as other:
                other.setattr(backup_format, "FORMAT", number)
                await write_backup(file_store, other_path)
            with pytest.raises(InvalidInput, match=f"backup format {number}, and this program reads format 1"):
                check_backup(other_path)

    async def test_an_older_file_lacks_only_columns_that_have_a_value_for_it(
        self, file_store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await write_backup(file_store, path)
        monkeypatch.setitem(TABLES, "tenants", (*TABLES["tenants"], "plan"))
        with pytest.raises(InvalidInput, match=r"older threadline .*without tenants\.plan"):
            check_backup(path)
        monkeypatch.setitem(ADDED_COLUMNS, ("tenants", "plan"), "free")
        with path.open("rb") as file:
            frames = backup_format.BackupReader(file, "f", None).frames()
            found = [rows for _, table, rows in frames if table == "tenants"]
        assert [rows[0][-1] for rows in found] == ["free"]

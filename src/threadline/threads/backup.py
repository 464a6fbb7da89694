"""Backups of a whole database into one file, and their restore into an empty database of either kind.

A backup reads one state of all tenants while others write. It is written as `.partial` beside its place, synced, read
again and compared, and only then gets its name: a file under the final name is complete. A restore checks the whole
file before it touches the database, writes in one transaction, and compares the rows with the file before the commit.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from threadline.core.errors import Conflict, InvalidInput, StoreFull
from threadline.core.portable import TABLES
from threadline.ports import Cipher, DatabaseTransaction, Store
from threadline.threads.backup_format import BackupReader, BackupWriter, Tallies, add_to, count_rows
from threadline.threads.database_copy import PASSES, read_pages

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of rows so far, and the number of all rows if it is known."""


async def write_backup(
    store: Store, path: Path, *, cipher: Cipher | None = None, progress: Progress | None = None
) -> dict[str, int]:
    """How many rows of each table. InvalidInput if the file exists or cannot be written, StoreFull if the disk is."""
    with _new_file(path) as file:
        writer = BackupWriter(file, cipher)
        async with store.snapshot() as snapshot:
            for tenant_id in await snapshot.tenants():
                await _write_tenant(writer, snapshot, tenant_id, progress)
        writer.finish()
        _sync(file)
        if check_backup(Path(file.name), cipher=cipher) != writer.tallies:
            raise InvalidInput(f"{path} could not be read as it was written: check the disk, then take another backup")
    return count_rows(writer.tallies)


async def _write_tenant(
    writer: BackupWriter, snapshot: DatabaseTransaction, tenant_id: str, progress: Progress | None
) -> None:
    tables = await snapshot.enter(tenant_id)
    for number, table in enumerate(PASSES):
        async for rows in read_pages(tables, table):
            writer.write_rows(tenant_id, table, rows, is_repeated=table in PASSES[:number])
            if progress is not None:
                progress(writer.rows, None)


def check_backup(path: Path, *, cipher: Cipher | None = None) -> Tallies:
    """Reads the whole file and compares it with its hash and counts. InvalidInput says what is wrong with it."""
    with _open(path) as file:
        reader = BackupReader(file, str(path), cipher)
        for _ in reader.frames():
            pass
        return reader.tallies


async def restore_backup(
    path: Path, expected: Tallies, store: Store, *, cipher: Cipher | None = None, progress: Progress | None = None
) -> dict[str, int]:
    """How many rows of each table. `expected` is what `check_backup` returned. Conflict if the database has any tenant,
    or other rows than the file at the end; then nothing is stored."""
    async with store.load() as target:
        if await target.tenants():
            raise Conflict("the database is not empty, and nothing was changed: restore into a new one")
        await _write_rows(path, target, cipher, progress, sum(count_rows(expected).values()))
        found = await _read_tallies(target)
        if found != expected:
            raise Conflict("the database has other rows than the backup, and nothing was stored: stop its other users")
    return count_rows(found)


async def _write_rows(
    path: Path, target: DatabaseTransaction, cipher: Cipher | None, progress: Progress | None, total: int
) -> None:
    done, entered, tables = 0, "", None
    with _open(path) as file:
        for tenant_id, table, rows in BackupReader(file, str(path), cipher).frames():
            if tables is None or tenant_id != entered:
                tables, entered = await target.enter(tenant_id), tenant_id
            await tables.write_rows(table, rows)
            done += len(rows)
            if progress is not None:
                # The second pass over timelines comes on top of the total.
                progress(min(done, total), total)


async def _read_tallies(target: DatabaseTransaction) -> Tallies:
    found: Tallies = {}
    for tenant_id in await target.tenants():
        tables = await target.enter(tenant_id)
        for table in TABLES:
            async for rows in read_pages(tables, table):
                add_to(found, tenant_id, table, rows)
    return found


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as exc:
        raise InvalidInput(f"cannot read {path}: {exc.strerror}") from exc


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block ends, and is removed after an exception."""
    if path.exists():
        raise InvalidInput(f"{path} exists: choose a new name for the backup")
    partial = path.with_name(path.name + ".partial")
    try:
        # Only for this user: a backup contains everybody's conversations.
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yield file
        partial.rename(path)
        _sync_folder(path.parent)
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFull(f"no space left for {path}: make room, then take the backup again") from exc
        raise InvalidInput(f"cannot write {path}: {exc.strerror or exc}") from exc
    finally:
        partial.unlink(missing_ok=True)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

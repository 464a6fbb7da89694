"""Maintenance for operators: migrations, backups, health checks and erasure, on either database."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from threadline.administration.administration import Administration
from threadline.administration.agent_secrets import AgentSecrets
from threadline.bootstrap import open_vault
from threadline.clock import SystemClock
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_tenant_id
from threadline.core.receipts import ErasureReceipt
from threadline.core.threads import system_scope
from threadline.databases import is_postgres, needs_postgres, open_store, sqlite_path
from threadline.ports import Finding
from threadline.settings import Settings
from threadline.signatures import ReceiptSigner
from threadline.stores.migrations import Migration, Plan
from threadline.stores.sqlite import migrate as sqlite_migrate
from threadline.stores.sqlite.store import SqliteStore
from threadline.threads.backup import Progress as BackupProgress
from threadline.threads.backup import check_backup, restore_backup, write_backup
from threadline.threads.backup_format import KEY_ID, count_rows
from threadline.threads.database_copy import copy_database
from threadline.vault import Rotated, Vault

Progress: TypeAlias = Callable[[Migration, int, int], None]


async def plan_migration(url: str) -> Plan:
    """The migrations that `migrate` would apply. Writes nothing."""
    if is_postgres(url):
        with needs_postgres():
            from threadline.stores.postgres import migrate as postgres_migrate  # noqa: PLC0415 - an extra
        return await postgres_migrate.plan(url)
    return await asyncio.to_thread(sqlite_migrate.plan, sqlite_path(url))


async def migrate(
    url: str, *, progress: Progress | None = None, partitions: int | None = None, distribute: bool = False
) -> Plan:
    """Applies the missing migrations and returns them. Safe to repeat."""
    if is_postgres(url):
        with needs_postgres():
            from threadline.stores.postgres import migrate as postgres_migrate  # noqa: PLC0415 - an extra
        return await postgres_migrate.apply(url, progress=progress, partitions=partitions, distribute=distribute)
    if partitions is not None or distribute:
        raise InvalidInput("--partitions and --distribute are for PostgreSQL")
    return await asyncio.to_thread(sqlite_migrate.apply, sqlite_path(url), progress=progress)


def database_exists(url: str) -> bool:
    """Whether the file exists. Always True for a server: only connecting can tell."""
    return is_postgres(url) or Path(sqlite_path(url)).exists()


async def check(settings: Settings) -> list[Finding]:
    """The problems that the database has, each with what to do about it."""
    store = await open_store(settings, SystemClock())
    try:
        return [*await store.check(), *await AgentSecrets(store, open_vault(settings)).findings()]
    finally:
        await store.close()


async def tenant_agent_ids(settings: Settings) -> set[str]:
    """The agents that the tenant of the settings has added."""
    store = await open_store(settings, SystemClock())
    try:
        return {row.id for row in await store.scoped(system_scope(settings.tenant)).agents()}
    finally:
        await store.close()


async def encrypt_secrets(settings: Settings) -> Rotated:
    """Encrypts the agents' secrets that earlier versions stored in clear, if there is a key."""
    vault = open_vault(settings)
    if not vault.has_keys:
        return Rotated()
    store = await open_store(settings, SystemClock())
    try:
        return await AgentSecrets(store, vault).encrypt_clear()
    finally:
        await store.close()


async def backup(
    settings: Settings, target: Path, *, key: str | None = None, progress: BackupProgress | None = None
) -> dict[str, int]:
    """Writes the whole database into one file while it is in use. How many rows of each table."""
    if settings.database == ":memory:" or not database_exists(settings.database):
        raise NotFound("database", settings.database)
    store = await open_store(settings, SystemClock(), read_only=not is_postgres(settings.database))
    try:
        return await write_backup(store, target, cipher=_backup_cipher(key), progress=progress)
    finally:
        await store.close()


async def restore(
    source: Path,
    settings: Settings,
    *,
    key: str | None = None,
    dry_run: bool = False,
    progress: BackupProgress | None = None,
) -> dict[str, int]:
    """Restores a file of `backup` into an empty database; `dry_run` only checks the file. How many rows of each table.
    After a failure the database is as before."""
    cipher = _backup_cipher(key)
    expected = await asyncio.to_thread(check_backup, source, cipher=cipher)
    if dry_run:
        return count_rows(expected)
    is_new = not database_exists(settings.database)
    try:
        store = await open_store(settings, SystemClock())
        try:
            return await restore_backup(source, expected, store, cipher=cipher, progress=progress)
        finally:
            await store.close()
    except BaseException:
        if is_new:
            _remove_file(sqlite_path(settings.database))
        raise


def _remove_file(path: str) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(path + ending).unlink(missing_ok=True)


def _backup_cipher(key: str | None) -> Vault | None:
    return None if key is None else Vault({KEY_ID: key})


async def compact(url: str, *, progress: Callable[[int], None] | None = None) -> tuple[int, int]:
    """Rewrites a SQLite file without what was purged. Returns its size in bytes before and after."""
    if is_postgres(url) or url == ":memory:":
        raise InvalidInput("compact is for SQLite files; PostgreSQL has VACUUM")
    if not database_exists(url):
        raise NotFound("database", url)
    store = await SqliteStore.open(sqlite_path(url))
    try:
        before = (await store.statistics())["bytes"]
        await store.compact(progress=progress)
        return before, (await store.statistics())["bytes"]
    finally:
        await store.close()


async def copy(source: str, target: str, *, progress: Callable[[int], None] | None = None) -> dict[str, int]:
    """Copies every tenant of one database into another, and verifies it. How many rows of each table."""
    if source == target:
        raise InvalidInput("a database cannot be copied into itself")
    if not database_exists(source):
        raise NotFound("database", source)
    reading = await open_store(Settings(database=source), SystemClock())
    try:
        writing = await open_store(Settings(database=target), SystemClock())
        try:
            return await copy_database(reading, writing, progress=progress)
        finally:
            await writing.close()
    finally:
        await reading.close()


async def purge_user(settings: Settings, tenant_id: str, user_id: str) -> ErasureReceipt:
    """Removes everything of one user. NotFound."""
    async with administering(settings, tenant_id) as administration:
        return await administration.erasure.erase_user(user_id)


@asynccontextmanager
async def administering(settings: Settings, tenant_id: str) -> AsyncIterator[Administration]:
    """Administration for the operator, who can open the database itself. The audit log names their login."""
    scope = system_scope(check_tenant_id(tenant_id))
    clock = SystemClock()
    store = await open_store(settings, clock)
    try:
        sealer = settings.masking.build_sealer(settings.limits)
        signer = ReceiptSigner(settings.receipts.key)
        who = f"operator:{login()}"
        yield Administration(store, sealer, clock, scope, actor_id=who, signer=signer, retention=settings.retention)
    finally:
        await store.close()


def login() -> str:
    """Who runs this process, for the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return str(os.getuid())


async def purge_tenant(settings: Settings, tenant_id: str) -> ErasureReceipt:
    """Removes everything of one tenant; its audit log has one entry afterwards, about this. NotFound."""
    store = await open_store(settings, SystemClock())
    try:
        if check_tenant_id(tenant_id) not in await store.tenants():
            raise NotFound("tenant", tenant_id)
    finally:
        await store.close()
    async with administering(settings, tenant_id) as administration:
        return await administration.erasure.erase_tenant()

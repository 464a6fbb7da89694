"""Migrates a PostgreSQL database: creates the roles, runs the migrations it lacks, then applies changed functions.

One advisory lock makes migrators wait for each other. Each migration is one transaction that also writes the journal,
so the next migrator continues where a killed one stopped. If this login lacks a right, the error contains the SQL that
an administrator has to run.

The SQL functions are in one file per subject in `functions/` and are applied again whenever a file changes. The
database stores the checksum of each file that was applied. If one differs, all functions are dropped and created from
the files in one transaction, so that none remains that no file defines. Composite types are in `types.sql` and are
replaced only when that file changes, because connections of running programs keep the types' ids.

A program that is older than the database keeps the newer functions: `oldest compatible` of the migrations decides
whether it may use them. So a release that changes what a function takes or returns adds a migration that raises it.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import NamedTuple

import asyncpg

from threadline.core.errors import InvalidInput, SchemaMismatch
from threadline.core.timeouts import Timeouts
from threadline.stores.migrations import Applied, Migration, Plan, Progress, load_migrations
from threadline.stores.migrations import plan as plan_steps
from threadline.stores.postgres.errors import translated
from threadline.stores.postgres.pool import Address
from threadline.stores.postgres.rights import (
    CREATE_DUMP_ROLE,
    DUMP,
    find_missing_dump_grants,
    find_missing_rights,
    find_wrong_owners,
)
from threadline.stores.sql import load_queries

MIGRATIONS = load_migrations(__package__)
ROLES = ("threadline_migrator", "threadline_app", "threadline_worker", "threadline_search")
MAX_PARTITIONS = 1024
_SQL = load_queries(__package__, "queries/migrate.sql")
_DISTRIBUTE = load_queries(__package__, "queries/distribute.sql")
_PARTITIONED = "PARTITION BY HASH (tenant_id)"


async def plan(dsn: str) -> Plan:
    """What `apply` would do. Writes nothing."""
    async with _connected(dsn) as connection:
        return await find_pending(connection, with_repairs=True)


async def find_pending(
    connection: asyncpg.Connection, known: Sequence[Migration] = MIGRATIONS, *, with_repairs: bool = False
) -> Plan:
    """What this database lacks. SchemaMismatch if it is too new for this program, or had another history."""
    todo = plan_steps(known, await journal(connection))
    # A newer database has the functions of a newer program, which this one must neither report nor replace.
    if todo.target != len(MIGRATIONS):
        return todo
    todo = todo._replace(functions=await find_changed_functions(connection))
    # Rights are compared when all migrations have run: the listing has those of the newest schema.
    if todo.current < len(MIGRATIONS) or not with_repairs:
        return todo
    repairs = [*await find_wrong_owners(connection), *await find_missing_rights(connection)]
    return todo._replace(repairs=tuple(repairs))


async def apply(
    dsn: str,
    *,
    progress: Progress | None = None,
    partitions: int | None = None,
    distribute: bool = False,
    known: Sequence[Migration] = MIGRATIONS,
) -> Plan:
    """Brings the database to the newest version and returns what was done. Safe to repeat and to run concurrently.

    `partitions` splits the large tables of a new database by a hash of the tenant. `distribute` distributes a new
    database over the nodes of a Citus cluster. Bypass any pgbouncer: the lock belongs to the session."""
    if partitions is not None and not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidInput(f"`partitions` must be 1–{MAX_PARTITIONS}, got {partitions}")
    async with _connected(dsn) as connection:
        # Concurrent migrators wait here. The session's end releases the lock, also if this process is killed.
        await connection.execute(_SQL["take_lock"])
        todo = await find_pending(connection, known, with_repairs=True)
        if todo.current:
            present = await connection.fetchval(_SQL["count_partitions"])
            if distribute or partitions not in (None, present):
                raise InvalidInput(
                    "partitions and nodes of an existing database cannot be changed: create a new one and copy into it"
                )
            partitions = present
        if distribute and not await connection.fetchval(_SQL["has_citus"]):
            raise SchemaMismatch("this database has no Citus: run CREATE EXTENSION citus, then migrate again")
        await _create_prerequisites(connection, todo.repairs)
        notes = await _create_dump_role(connection)
        if distribute:
            await _allow_login(connection)
        for done, step in enumerate(todo.steps):
            if progress is not None:
                progress(step, done, len(todo.steps))
            await _run_step(connection, step, partitions or 0)
        if distribute:
            await _distribute_tables(connection)
        if todo.functions or todo.repairs:
            is_distributed = await find_distribution(connection)
            await apply_functions(connection, todo.functions, is_distributed=is_distributed)
            if is_distributed:
                await _distribute_functions(connection)
        elif await find_distribution(connection):
            # A node may have been added.
            await _allow_any_query(connection)
        await _grant_dumps(connection)
    return todo._replace(notes=notes)


async def journal(connection: asyncpg.Connection) -> tuple[Applied, ...]:
    """The migrations that were applied to this database; () for a new one."""
    if not await connection.fetchval(_SQL["has_journal"]):
        return ()
    return tuple(Applied(*row) for row in await connection.fetch(_SQL["read_journal"]))


async def _create_prerequisites(connection: asyncpg.Connection, repairs: Sequence[str]) -> None:
    missing = [*await prerequisites(connection), *repairs]
    try:
        async with connection.transaction():
            for statement in missing:
                await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError as exc:
        script = "\n".join(f"{statement};" for statement in missing)
        raise SchemaMismatch(
            f"this login may not create the roles, the schema or their rights ({exc}); run this as an administrator in "
            f"this database, then `threadline migrate` again:\n{script}"
        ) from exc


async def _create_dump_role(connection: asyncpg.Connection) -> tuple[str, ...]:
    """A note if this login may not create it: everything but pg_dump works without."""
    if await connection.fetchval(_SQL["has_role"], DUMP):
        return ()
    try:
        await connection.execute(CREATE_DUMP_ROLE)
    except asyncpg.InsufficientPrivilegeError:
        return (
            f"pg_dump needs a role that this login may not create; run this as an administrator: {CREATE_DUMP_ROLE};",
        )
    return ()


async def _grant_dumps(connection: asyncpg.Connection) -> None:
    statements = await find_missing_dump_grants(connection)
    async with connection.transaction():
        await connection.execute(_SQL["become_migrator"])
        for statement in statements:
            await connection.execute(statement)


async def prerequisites(connection: asyncpg.Connection) -> list[str]:
    """The statements that create the missing roles and the schema."""
    found = await connection.fetchrow(_SQL["find_prerequisites"], list(ROLES))
    assert found is not None
    present = found["roles"] or ()
    needed = [
        f"CREATE ROLE {role} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS"
        for role in ROLES
        if role not in present
    ]
    if not found["can_grant_search"]:
        needed.append("GRANT threadline_search TO threadline_migrator")
    if not found["is_migrator"]:
        needed.append(f"GRANT threadline_migrator TO {found['login']}")
    if not found["has_schema"]:
        needed.append("CREATE SCHEMA threadline AUTHORIZATION threadline_migrator")
    return needed


async def _run_step(connection: asyncpg.Connection, step: Migration, partitions: int) -> None:
    sql = step.sql.replace(f"-- {_PARTITIONED}\n", f"{_PARTITIONED}\n") if partitions else step.sql
    async with connection.transaction():
        await connection.execute(_SQL["become_migrator"])
        await connection.execute(_SQL["set_partitions"], str(partitions))
        await connection.execute(_SQL["create_journal"])
        await connection.execute(sql)
        await connection.execute(_SQL["write_journal"], step.number, step.name, step.checksum, step.oldest_compatible)


async def find_distribution(connection: asyncpg.Connection) -> bool:
    """Whether the tables are distributed over the nodes of a Citus cluster."""
    has_citus = await connection.fetchval(_SQL["has_citus"])
    return bool(has_citus and await connection.fetchval(_SQL["is_distributed"]))


async def _allow_login(connection: asyncpg.Connection) -> None:
    """Citus connects to the other nodes as the role of the transaction, and the migrator creates the tables there. It
    gets no password: pg_hba.conf of the nodes decides from where it may log in."""
    await connection.execute("ALTER ROLE threadline_migrator LOGIN")


async def _distribute_tables(connection: asyncpg.Connection) -> None:
    await connection.execute(_DISTRIBUTE["simplify_policies"])
    # Citus requires a transaction of its own for each statement.
    await connection.execute(_DISTRIBUTE["distribute_tenants"])
    for row in await connection.fetch(_DISTRIBUTE["list_tables"]):
        await connection.execute(_DISTRIBUTE["distribute_table"], row["tablename"])


async def _distribute_functions(connection: asyncpg.Connection) -> None:
    for row in await connection.fetch(_SQL["list_functions"]):
        await connection.execute(_DISTRIBUTE["distribute_function"], row["signature"])
    await _allow_any_query(connection)


async def _allow_any_query(connection: asyncpg.Connection) -> None:
    await connection.execute(_DISTRIBUTE["allow_any_query"])


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    address = Address.parse(dsn)
    with translated():
        connection = await address.connect(Timeouts(), unbounded=True)
        try:
            yield connection
        finally:
            await connection.close()


_TYPES = "types"


class FunctionFile(NamedTuple):
    subject: str
    sql: str
    checksum: str


def load_function_files(package: str, folder: str = "functions") -> tuple[FunctionFile, ...]:
    found = []
    for entry in files(package).joinpath(folder).iterdir():
        if entry.name.endswith(".sql"):
            sql = entry.read_text(encoding="utf-8").replace("\r\n", "\n")
            found.append(FunctionFile(entry.name.removesuffix(".sql"), sql, hashlib.sha256(sql.encode()).hexdigest()))
    # Signatures name types, so these come first; bodies are resolved when they run and need no order.
    found.sort(key=lambda file: (file.subject != _TYPES, file.subject))
    return tuple(found)


FUNCTION_FILES = load_function_files(__package__)


async def find_changed_functions(connection: asyncpg.Connection) -> tuple[str, ...]:
    """The subjects whose file is not the one that was applied to this database, those without a file included."""
    stored = {}
    if await connection.fetchval(_SQL["has_function_files"]):
        stored = {row["subject"]: row["checksum"] for row in await connection.fetch(_SQL["read_function_files"])}
    known = {file.subject: file.checksum for file in FUNCTION_FILES}
    return tuple(sorted(subject for subject in known | stored if known.get(subject) != stored.get(subject)))


async def apply_functions(
    connection: asyncpg.Connection, changed: Sequence[str], *, is_distributed: bool = False
) -> None:
    """Replaces every function, and the types if their file changed, in one transaction."""
    async with connection.transaction():
        await connection.execute(_SQL["become_migrator"])
        await connection.execute(_SQL["drop_functions"])
        if _TYPES in changed:
            await connection.execute(_SQL["drop_types"])
        for file in FUNCTION_FILES:
            if file.subject != _TYPES or _TYPES in changed:
                await connection.execute(_for_cluster(file.sql) if is_distributed else file.sql)
        await connection.execute(_SQL["forget_function_files"])
        await connection.executemany(
            _SQL["write_function_file"], [(file.subject, file.checksum) for file in FUNCTION_FILES]
        )


def _for_cluster(sql: str) -> str:
    # Citus finds the node of a statement from its values, which a generic plan does not have. Lines with a mark are for
    # clusters only.
    return sql.replace("'force_generic_plan'", "'force_custom_plan'").replace("-- CLUSTER ", "")

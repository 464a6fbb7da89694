"""What a doctor looks at in PostgreSQL: that row security stands on every table, that the roles are as small as they
should be, that every thread's count agrees with its messages, and that what belongs to a thread has one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from threadline.ports import Finding
from threadline.stores.postgres.session import ScopedSession
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/check.sql")
_RESTORE = "restore from a backup"


async def schema_findings(session: ScopedSession) -> list[Finding]:
    """What is wrong with the schema and its roles."""
    return [finding async for finding in _schema_findings(session)]


async def _schema_findings(session: ScopedSession) -> AsyncIterator[Finding]:
    for row in await session.plain_rows(_SQL["list_unprotected"]):
        table = row["tablename"]
        if not row["is_forced"]:
            remedy = f"ALTER TABLE threadline.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
            yield Finding("error", f"row security is not forced on table {table}", remedy)
        if not row["has_policy"]:
            yield Finding(
                "error", f"table {table} has no policy", f"SELECT threadline.protect('threadline.{table}', …)"
            )
    for row in await session.plain_rows(_SQL["list_mighty_roles"]):
        remedy = f"ALTER ROLE {row['rolname']} NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE"
        yield Finding("error", f"role {row['rolname']} may do more than it should", remedy)
    for row in await session.plain_rows(_SQL["list_owned_by_roles"]):
        remedy = f"ALTER TABLE threadline.{row['tablename']} OWNER TO threadline_migrator"
        yield Finding("error", f"table {row['tablename']} belongs to {row['owner']}", remedy)
    for row in await session.plain_rows(_SQL["list_strangers"]):
        remedy = f"REVOKE ALL ON threadline.{row['tablename']} FROM {row['grantee']}"
        yield Finding("warning", f"{row['grantee']} has rights on table {row['tablename']}", remedy)


async def tenant_findings(session: ScopedSession) -> list[Finding]:
    """Threads of one tenant that do not add up, and what belongs to none of them."""
    miscounted = [
        Finding(
            "error",
            f"thread {row['id']} of tenant {session.tenant_id} counts other messages than it has",
            "restore from a backup, or export the thread and import it again",
        )
        for row in await session.rows(_SQL["list_wrong_counts"])
    ]
    dangling = [
        Finding("error", f"{row['kind']} {row['name']} of tenant {session.tenant_id} lacks its thread", _RESTORE)
        for row in await session.rows(_SQL["list_dangling"])
    ]
    return miscounted + dangling

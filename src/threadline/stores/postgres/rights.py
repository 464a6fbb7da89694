"""Owners, row security, policies and grants: which of them a database lacks, and the statements that put them back.

A dump that is restored without its roles loses all of these and keeps the rows. `schema.sql` lists what the migrations
produce, and a test compares it with a migrated database, so it is what a complete database has. Functions are left out:
`migrate` creates all of them again after a repair.
"""

from __future__ import annotations

import re
from importlib.resources import files

import asyncpg

from threadline.stores.sql import load_queries

MIGRATOR, DUMP = "threadline_migrator", "threadline_dump"
_SQL = load_queries(__package__, "queries/rights.sql")
_POLICY = re.compile(r"^CREATE POLICY (?P<name>\w+) ON threadline\.(?P<table>\w+) .*$", re.MULTILINE)
_GRANT = re.compile(r"^GRANT (?P<rights>[A-Z, ]+) ON threadline\.(?P<table>\w+) TO (?P<role>\w+);$", re.MULTILINE)
CREATE_DUMP_ROLE = f"CREATE ROLE {DUMP} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE BYPASSRLS"
"""For pg_dump, which must read around row security. Only a superuser may create it, or a role with the same right."""
GRANT_DUMP = (
    f"GRANT USAGE ON SCHEMA threadline TO {DUMP}",
    f"GRANT SELECT ON ALL TABLES IN SCHEMA threadline TO {DUMP}",
    f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA threadline TO {DUMP}",
)


def _listing() -> str:
    return files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")


async def find_wrong_owners(connection: asyncpg.Connection) -> list[str]:
    """The statements that give the migrator what belongs to another role."""
    return [row["statement"] for row in await connection.fetch(_SQL["list_wrong_owners"])]


async def find_missing_rights(connection: asyncpg.Connection) -> list[str]:
    """The statements that put back row security, policies and grants of the tables that exist."""
    tables = {row["tablename"]: row["is_forced"] for row in await connection.fetch(_SQL["list_tables"])}
    policies = {tuple(row) for row in await connection.fetch(_SQL["list_policies"])}
    grants = {tuple(row) for row in await connection.fetch(_SQL["list_grants"])}
    listing = _listing()
    missing = [
        f"ALTER TABLE threadline.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        for table, is_forced in tables.items()
        if not is_forced
    ]
    if not await connection.fetchval(_SQL["is_schema_open"]):
        missing.append("GRANT USAGE ON SCHEMA threadline TO public")
    missing += [
        policy[0].rstrip(";")
        for policy in _POLICY.finditer(listing)
        if policy["table"] in tables and (policy["table"], policy["name"]) not in policies
    ]
    for grant in _GRANT.finditer(listing):
        wanted = {(grant["table"], grant["role"], right) for right in grant["rights"].split(", ")}
        if grant["table"] in tables and not wanted <= grants:
            missing.append(grant[0].rstrip(";"))
    return missing


async def find_missing_dump_grants(connection: asyncpg.Connection) -> tuple[str, ...]:
    """() if there is no role for dumps, or if it may read everything."""
    return GRANT_DUMP if await connection.fetchval(_SQL["lacks_dump_grants"]) else ()

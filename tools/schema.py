"""The golden schemas of both databases, written from what their migrations produce: `python tools/schema.py`.

`stores/sqlite/schema.sql` and `stores/postgres/schema.sql` show the result of all migrations in one place, so that a
reader need not add them up and a review sees what a migration changes. A test compares them with a migrated database.
Nothing executes them: they are listings, sorted by name, and of functions they have only the signatures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import apsw
import asyncpg

from threadline.stores.sqlite import migrate as sqlite_migrate
from threadline.stores.sqlite.connection import locate
from threadline.testing.postgres import shared_server

STORES = Path(__file__).resolve().parent.parent / "src" / "threadline" / "stores"
SQLITE, POSTGRES = STORES / "sqlite" / "schema.sql", STORES / "postgres" / "schema.sql"
_HEADER = "-- What the migrations produce. Written by `python tools/schema.py`; a test compares it with a database.\n"

_TABLES = """
    SELECT c.oid, c.relname::text AS name, c.relrowsecurity AND c.relforcerowsecurity AS is_protected,
        array_to_string(c.reloptions, ', ') AS options, pg_get_userbyid(c.relowner)::text AS owner
    FROM pg_class c
    WHERE c.relnamespace = 'threadline'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    ORDER BY 2
"""
_COLUMNS = """
    SELECT concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attcollation <> t.typcollation THEN 'COLLATE ' || quote_ident(l.collname) END,
        CASE WHEN a.attstorage <> t.typstorage THEN 'STORAGE ' || a.attstorage::text END,
        CASE WHEN a.attnotnull THEN 'NOT NULL' END,
        CASE a.attidentity WHEN 'a' THEN 'GENERATED ALWAYS AS IDENTITY' END,
        'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid))
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# PostgreSQL 18 lists NOT NULL among the constraints ('n'); the columns have it already.
_CONSTRAINTS = """
    SELECT format('CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
    WHERE conrelid = $1 AND contype <> 'n' AND conparentid = 0 ORDER BY contype <> 'p', conname
"""
_INDEXES = """
    SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i
    WHERE i.indrelid = $1 AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
    ORDER BY 1
"""
_POLICIES = """
    SELECT format('CREATE POLICY %I ON %s', p.polname, p.polrelid::regclass)
        || CASE p.polcmd WHEN '*' THEN '' WHEN 'r' THEN ' FOR SELECT' ELSE ' FOR ' || p.polcmd::text END
        || ' TO ' || (
            SELECT string_agg(r.rolname, ', ' ORDER BY r.rolname) FROM pg_roles r WHERE r.oid = ANY (p.polroles)
        )
        || ' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')'
        || coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', '')
    FROM pg_policy p WHERE p.polrelid = $1 ORDER BY 1
"""
# Everything may be dumped, so the role for dumps is not listed.
_GRANTS = """
    SELECT format('GRANT %s ON %s TO %s', string_agg(g.privilege_type, ', ' ORDER BY g.privilege_type), c.oid::regclass,
        coalesce(r.rolname::text, 'public'))
    FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) g LEFT JOIN pg_roles r ON r.oid = g.grantee
    WHERE c.oid = $1 AND g.grantee <> c.relowner AND r.rolname IS DISTINCT FROM 'threadline_dump'
    GROUP BY c.oid, r.rolname ORDER BY 1
"""
_TYPES = """
    SELECT c.oid, c.oid::regclass::text AS name FROM pg_class c
    WHERE c.relnamespace = 'threadline'::regnamespace AND c.relkind = 'c' ORDER BY 2
"""
_FUNCTIONS = """
    SELECT concat_ws(' ', format('CREATE FUNCTION threadline.%s(%s)', p.proname, pg_get_function_arguments(p.oid)),
        'RETURNS ' || pg_get_function_result(p.oid),
        'LANGUAGE ' || l.lanname,
        CASE p.provolatile WHEN 'i' THEN 'IMMUTABLE' WHEN 's' THEN 'STABLE' END,
        CASE WHEN p.prosecdef THEN 'SECURITY DEFINER' END,
        'SET ' || array_to_string(p.proconfig, ', '),
        CASE WHEN pg_get_userbyid(p.proowner) <> 'threadline_migrator' THEN 'OWNER ' || pg_get_userbyid(p.proowner) END,
        'ACL ' || array_to_string(p.proacl, ', '))
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.pronamespace = 'threadline'::regnamespace ORDER BY 1
"""
# Shadow tables of an FTS5 table belong to SQLite and differ between its versions.
_SQLITE_OBJECTS = """
    SELECT s.sql FROM sqlite_schema s
    WHERE s.sql IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM pragma_table_list t WHERE t.name = s.tbl_name AND t.type = 'shadow'
    )
    ORDER BY s.tbl_name, s.type DESC, s.name
"""


def sqlite_schema() -> str:
    connection = apsw.Connection(":memory:")
    try:
        sqlite_migrate.migrate(connection, locate(":memory:"))
        statements = [str(sql) for (sql,) in connection.execute(_SQLITE_OBJECTS)]
    finally:
        connection.close()
    return _listing(_without_comments(sql) for sql in statements)


async def postgres_schema(connection: asyncpg.Connection) -> str:
    statements = []
    for table in await connection.fetch(_TABLES):
        lines = await _texts(connection, _COLUMNS, table["oid"]) + await _texts(connection, _CONSTRAINTS, table["oid"])
        options = f" WITH ({table['options']})" if table["options"] else ""
        statements.append(f"CREATE TABLE threadline.{table['name']} (\n    " + ",\n    ".join(lines) + f"\n){options}")
        if table["is_protected"]:
            statements.append(f"ALTER TABLE threadline.{table['name']} FORCE ROW LEVEL SECURITY")
        for query in (_INDEXES, _POLICIES, _GRANTS):
            statements += await _texts(connection, query, table["oid"])
    for kind in await connection.fetch(_TYPES):
        columns = ", ".join(await _texts(connection, _COLUMNS, kind["oid"]))
        statements.append(f"CREATE TYPE {kind['name']} AS ({columns})")
    statements += [row[0] for row in await connection.fetch(_FUNCTIONS)]
    return _listing(statements)


async def _texts(connection: asyncpg.Connection, query: str, oid: int) -> list[str]:
    return [row[0] for row in await connection.fetch(query, oid)]


def _listing(statements: Iterable[str]) -> str:
    return _HEADER + "".join(f"\n{statement};\n" for statement in statements)


def _without_comments(sql: str) -> str:
    lines = (line.partition(" --")[0].rstrip() for line in sql.splitlines() if not line.strip().startswith("--"))
    return "\n".join(line for line in lines if line)


async def _migrated() -> str:
    server = shared_server()
    async with server.database() as dsn:
        connection = await asyncpg.connect(server.admin_dsn(dsn))
        try:
            return await postgres_schema(connection)
        finally:
            await connection.close()


def main() -> None:
    SQLITE.write_text(sqlite_schema(), encoding="utf-8")
    POSTGRES.write_text(asyncio.run(_migrated()), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The golden schemas show what the migrations produce: run `python tools/schema.py` after a change."""

from __future__ import annotations

import asyncpg

from threadline.testing.postgres import shared_server
from tools import schema


def test_the_sqlite_schema_is_what_migrations_produce() -> None:
    assert schema.SQLITE.read_text(encoding="utf-8") == schema.sqlite_schema()


async def test_the_postgresql_schema_is_what_migrations_produce() -> None:
    server = shared_server()
    async with server.database() as dsn:
        connection = await asyncpg.connect(server.admin_dsn(dsn))
        try:
            found = await schema.postgres_schema(connection)
        finally:
            await connection.close()
    assert schema.POSTGRES.read_text(encoding="utf-8") == found

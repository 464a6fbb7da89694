"""The shared server for tests: cloned databases, and removal after the last user."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg
import pytest

from threadline.testing.postgres import PostgresServer, installations, shared_server

USES = """
import asyncio, os, sys
from threadline.testing.postgres import shared_server
server = shared_server()
asyncio.run(server.create_database(migrated=False))
print(server.directory, flush=True)
if sys.argv[1] == "dies":
    os.kill(os.getpid(), 9)
"""


def use(how: str, home: Path) -> Path:
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(home), "PYTEST_XDIST_TESTRUNUID": how}
    done = subprocess.run(
        [sys.executable, "-c", USES, how], capture_output=True, text=True, env=environment, check=False, timeout=120
    )
    assert done.stdout, done.stderr
    return Path(done.stdout.strip())


def is_running(directory: Path) -> bool:
    return (directory / "data" / "postmaster.pid").exists()


def test_the_embedded_wheel_is_installed(server: PostgresServer) -> None:
    assert "embedded" in installations()
    assert shared_server() is server


async def test_each_database_is_a_separate_clone(server: PostgresServer) -> None:
    async with server.database() as one, server.database() as two:
        connection = await asyncpg.connect(server.admin_dsn(one))
        await connection.execute("INSERT INTO threadline.tenants (tenant_id, created_at) VALUES ('a', now())")
        await server.truncate(one)
        assert await connection.fetchval("SELECT count(*) FROM threadline.tenants") == 0
        await connection.close()
        assert one != two
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(server.admin_dsn(one))


def test_a_server_stops_with_its_last_user_and_an_abandoned_one_with_the_next_run() -> None:
    home = Path(tempfile.mkdtemp(prefix="tl-"))
    home.chmod(0o755)
    left_over = use("dies", home)
    assert is_running(left_over)
    ended = use("ends", home)
    assert not ended.exists()
    assert not left_over.exists()
    shutil.rmtree(home)

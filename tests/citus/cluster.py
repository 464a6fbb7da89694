"""A Citus cluster for tests: a coordinator and two workers on loopback, from a PostgreSQL that has the extension."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import asyncpg

from tests.ports import free_port
from threadline.stores.postgres import migrate
from threadline.testing.postgres import LOGIN, installations

SETTINGS = """
shared_preload_libraries = 'citus'
listen_addresses = '127.0.0.1'
max_connections = 200
max_prepared_transactions = 200
wal_level = logical
fsync = off
"""


def find_binaries() -> Path | None:
    """The folder of a PostgreSQL with Citus: THREADLINE_CITUS_BIN, or one that the system has."""
    chosen = os.environ.get("THREADLINE_CITUS_BIN")
    for folder in [Path(chosen)] if chosen else installations().values():
        if (folder.parent / "lib" / "citus.so").exists():
            return folder
    return None


class Cluster:
    def __init__(self, binaries: Path) -> None:
        self._bin = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="tl-citus-"))
        self.ports = [free_port() for _ in range(3)]
        # The server's own connections must not look for certificates in the home of the user who runs the tests.
        self._as_user: dict[str, object] = {"env": {"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder)}}
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            account = pwd.getpwnam("nobody")
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._as_user |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def address(self, *, user: str = LOGIN, node: int = 0) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.ports[node]}/threadline"

    async def start(self) -> None:
        for node in range(3):
            data = self._folder / str(node)
            self._run("initdb", "-D", str(data), "-U", "postgres", "--auth=trust", "--no-locale", "-E", "UTF8", "-N")
            with (data / "postgresql.conf").open("a") as file:
                file.write(f"{SETTINGS}port = {self.ports[node]}\nunix_socket_directories = '{self._folder}'\n")
            self.start_node(node)
            await self._admin("CREATE DATABASE threadline", node=node, database="postgres")
            await self._admin("CREATE EXTENSION citus", node=node)
        await self._admin(f"SELECT citus_set_coordinator_host('127.0.0.1', {self.ports[0]})")
        for node in (1, 2):
            await self._admin(f"SELECT citus_add_node('127.0.0.1', {self.ports[node]})")
        await migrate.apply(self.address(user="postgres"), distribute=True)
        await self._admin(f"CREATE ROLE {LOGIN} LOGIN")
        await self._admin(f"GRANT threadline_app, threadline_worker TO {LOGIN}")

    def start_node(self, node: int) -> None:
        self._run("pg_ctl", "-D", str(self._folder / str(node)), "-w", "-l", str(self._folder / f"log{node}"), "start")

    def stop_node(self, node: int) -> None:
        self._run("pg_ctl", "-D", str(self._folder / str(node)), "-w", "-m", "immediate", "stop")

    def discard(self) -> None:
        for node in range(3):
            if (self._folder / str(node) / "postmaster.pid").exists():
                self.stop_node(node)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def fetch(self, statement: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.address(user="postgres"))
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    async def port_of(self, tenant_id: str) -> int:
        """The port of the node that has the tenant's rows, also before there are any."""
        (row,) = await self.fetch(f"""
            SELECT nodeport FROM citus_shards
            WHERE shardid = get_shard_id_for_distribution_column('threadline.tenants', '{tenant_id}')
        """)
        return int(row["nodeport"])

    async def _admin(self, statement: str, *, node: int = 0, database: str = "threadline") -> None:
        address = self.address(user="postgres", node=node).removesuffix("threadline") + database
        connection = await asyncpg.connect(address)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        # A file, because the server keeps the standard streams open and a pipe would never reach its end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command, check=False, stdout=output, stderr=output, cwd="/", timeout=120, **self._as_user
            )  # type: ignore[call-overload]
            output.seek(0)
            if done.returncode != 0:
                logs = "".join(path.read_text() for path in self._folder.glob("log*"))
                raise RuntimeError(f"{program} failed: {output.read().decode(errors='replace')}{logs}")

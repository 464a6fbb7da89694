"""Where a case runs: a directory for files or a PostgreSQL server for databases, and how large to go.

PostgreSQL runs durably (fsync on) and is shared by the contenders of a case; each gets a database of its own. The
server is the one the tests use, from the wheel, with its settings as they come.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg

from bench.places import WORKSPACE, Backend
from threadline.testing.postgres import PostgresServer, installations

SERVER = "BENCH_POSTGRES_SERVER"
T = TypeVar("T")


class Arena:
    """One case's ground. Files and databases made here are gone after it."""

    def __init__(self, backend: Backend, directory: Path, *, quick: bool, server: PostgresServer | None) -> None:
        self.backend: Backend = backend
        self.quick = quick
        self._directory = directory
        self._server = server
        self._names = itertools.count()
        self._databases: list[str] = []

    def sized(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    def file(self, name: str) -> Path:
        return self._directory / f"{next(self._names)}-{name}.sqlite3"

    async def database(self, *, migrated: bool = False) -> str:
        """A database's address: migrated for Threadline's own login, empty for a superuser who needs no policies."""
        assert self._server is not None
        dsn = await self._server.create_database(migrated=migrated)
        self._databases.append(dsn)
        return dsn if migrated else self._server.admin_dsn(dsn)

    def admin_dsn(self, dsn: str) -> str:
        assert self._server is not None
        return self._server.admin_dsn(dsn)

    async def settle(self) -> None:
        """After filling and before measuring: what a server does in its idle minutes is done now, for everyone."""
        for dsn in self._databases:
            connection = await asyncpg.connect(self.admin_dsn(dsn))
            await connection.execute("VACUUM (ANALYZE)")
            await connection.execute("CHECKPOINT")
            await connection.close()


@asynccontextmanager
async def arena(backend: Backend, *, quick: bool) -> AsyncIterator[Arena]:
    directory = Path(tempfile.mkdtemp(prefix="case-", dir=WORKSPACE))
    try:
        yield Arena(backend, directory, quick=quick, server=_given_server() if backend == "postgres" else None)
    finally:
        shutil.rmtree(directory)


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A durable server for a whole run; cases find it by the environment."""
    # Short, and outside the checkout: a socket path has at most 107 characters, and the server may run as another user.
    directory = Path(tempfile.mkdtemp(prefix="threadline-bench-"))
    server = PostgresServer(installations()["embedded"], directory, durable=True)
    server.ensure_started()
    os.environ[SERVER] = str(directory)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def _given_server() -> PostgresServer:
    server = PostgresServer(installations()["embedded"], Path(os.environ[SERVER]), durable=True)
    server.ensure_started()
    return server

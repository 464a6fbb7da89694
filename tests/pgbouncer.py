"""Debian's pgbouncer for tests: the system's, or the packages that `apt-get download` fetches without root, unpacked in
`.tools/`. Each test process starts its own, in front of any server whose socket's folder it is given.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from threadline.testing.postgres import LOGIN

_TOOLS = Path(__file__).parents[1] / ".tools"
_PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")
"""With the libraries that a machine without pgbouncer may lack."""
_UNPRIVILEGED_ID = 65534
_START_SECONDS = 30
_DOWNLOAD_SECONDS = 120


@functools.cache
def find_pgbouncer() -> Path | None:
    """The system's program, else the downloaded one; None where neither is to be had."""
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed is not None:
        return Path(installed)
    home = _TOOLS / "pgbouncer"
    _TOOLS.mkdir(exist_ok=True)
    with (_TOOLS / "pgbouncer.lock").open("w") as lock:
        # Test processes that start together must not unpack into the same folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir() and not _download(home):
            return None
    return home / "usr" / "sbin" / "pgbouncer"


def _download(home: Path) -> bool:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    with tempfile.TemporaryDirectory(dir=_TOOLS) as folder:
        work = Path(folder)
        fetched = subprocess.run(
            ["apt-get", "download", "-q", *_PACKAGES],
            cwd=work,
            check=False,
            capture_output=True,
            timeout=_DOWNLOAD_SECONDS,
        )
        if fetched.returncode != 0:
            return False
        for package in work.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, work / "root"], check=True, timeout=60)
        (work / "root").rename(home)
    return True


class Pgbouncer:
    """One process that pools connections to the server whose socket is in `server_folder`. It takes every database."""

    def __init__(
        self, program: Path, server_folder: Path, *, mode: str = "transaction", size: int = 4, options: str = ""
    ) -> None:
        self._program = program
        # Short, because the path of a Unix socket may have 107 characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="tl-pgb-", dir="/tmp"))
        self.folder.chmod(0o755)
        (self.folder / "users").write_text(f'"{LOGIN}" ""\n"postgres" ""\n')
        (self.folder / "ini").write_text(f"""
[databases]
* = host={server_folder}
[pgbouncer]
unix_socket_dir = {self.folder}
listen_addr =
auth_type = trust
auth_file = {self.folder}/users
admin_users = postgres
pool_mode = {mode}
default_pool_size = {size}
logfile = {self.folder}/log
{options}
""")
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = process = self._popen()
        async with asyncio.timeout(_START_SECONDS):
            while not (self.folder / ".s.PGSQL.6432").exists():
                assert process.poll() is None, (self.folder / "log").read_text()
                await asyncio.sleep(0.02)

    def _popen(self) -> subprocess.Popen[bytes]:
        as_user: dict[str, object] = {}
        if os.geteuid() == 0:
            # pgbouncer refuses to run as root.
            os.chown(self.folder, _UNPRIVILEGED_ID, _UNPRIVILEGED_ID)
            as_user = {"user": _UNPRIVILEGED_ID, "group": _UNPRIVILEGED_ID, "extra_groups": []}
        # Beside the unpacked program are its libraries; elsewhere this folder does not exist.
        libraries = self._program.parents[1] / "lib" / f"{os.uname().machine}-linux-gnu"
        command = [self._program, "-q", str(self.folder / "ini")]
        return subprocess.Popen(command, env={"LD_LIBRARY_PATH": str(libraries)}, **as_user)  # type: ignore[call-overload,no-any-return]

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_START_SECONDS)
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, dsn: str, *, option: str = "&pgbouncer=true", user: str = LOGIN) -> str:
        """The same database through this process."""
        return f"postgresql://{user}@/{urlsplit(dsn).path[1:]}?host={self.folder}&port=6432{option}"

    async def show(self, what: str) -> list[asyncpg.Record]:
        """What the console of administrators shows: `POOLS`, `STATS` …"""
        connection = await asyncpg.connect(
            f"postgresql://postgres@/pgbouncer?host={self.folder}&port=6432", statement_cache_size=0
        )
        try:
            return await connection.fetch(f"SHOW {what}")
        finally:
            await connection.close()


async def start_pgbouncer(
    server_folder: Path, *, mode: str = "transaction", size: int = 4, options: str = ""
) -> Pgbouncer:
    program = find_pgbouncer()
    if program is None:
        pytest.skip("pgbouncer is not installed and cannot be downloaded: apt-get install pgbouncer")
    pooler = Pgbouncer(program, server_folder, mode=mode, size=size, options=options)
    try:
        await pooler.start()
    except BaseException:
        pooler.stop()
        raise
    return pooler

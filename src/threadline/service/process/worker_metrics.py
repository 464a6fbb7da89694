"""One scrape for all processes: the one that is scraped asks the others and answers for all of them.

Each process listens on a socket file in a folder that only this user can enter: one that the parent process made for
its workers, or, for processes with roles, one for each database in the folder of lock files. Who connects gets the
metrics of the process as JSON. Every sample has the label `worker`, so that the counters of a worker
that restarts do not decrease those of another.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import msgspec

from threadline.observability.metrics import Family, Metrics
from threadline.processes import runtime_folder
from threadline.settings import Settings

log = logging.getLogger("threadline.service")

# A worker whose event loop is busy for longer is left out of this scrape; scrapers themselves wait ten seconds.
_SECONDS = 2.0
_LOCK = ".lock"
_decoder = msgspec.json.Decoder(list[Family])


@contextmanager
def named_by_role(role: str, settings: Settings) -> Iterator[tuple[Path, str] | None]:
    """The folder that the processes of this user share for this database, and a name in it while the block lasts: the
    first of `role-0`, `role-1` and so on that no running process has. A process that is restarted gets the name of the
    one before it. None if there can be no such folder: then a scrape has only this process."""
    database = settings.database.rpartition("@")[2]
    if "://" not in settings.database:
        database = str(Path(settings.database).expanduser().absolute())
    base = Path(settings.process_folder).expanduser() if settings.process_folder else runtime_folder()
    folder = base / f"metrics-{hashlib.sha256(database.encode()).hexdigest()[:12]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077 or not stat.S_ISDIR(found.st_mode):
            raise PermissionError
        lock, name = _free_name(folder, role)
    except OSError as exc:
        log.warning("metrics of processes not joined", extra={"folder": str(folder), "reason": type(exc).__name__})
        yield None
        return
    try:
        yield folder, name
    finally:
        # The file stays: another process may have opened it to lock it.
        os.close(lock)


def _free_name(folder: Path, role: str) -> tuple[int, str]:
    for number in count():
        name = f"{role}-{number}"
        lock = os.open(folder / f"{name}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The kernel releases it when the process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return lock, name
    raise AssertionError("numbers do not end")


@asynccontextmanager
async def shared_metrics(metrics: Metrics, folder: Path, name: str) -> AsyncIterator[None]:
    """While it is open, a scrape of any process in the folder has the metrics of all of them. Where the path of a
    socket would be too long, a scrape has only this process."""
    metrics.add_common_label("worker", name)
    own = folder / name

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(msgspec.json.encode(await metrics.own_families()))
        await writer.drain()
        writer.close()

    async def read_others() -> list[Family]:
        # A folder of a few entries in memory or in the cache: quicker than a thread.
        others = [path for path in sorted(folder.iterdir()) if path != own and path.suffix != _LOCK]  # noqa: ASYNC240
        found = await asyncio.gather(*(_read(path) for path in others))
        return [family for families in found for family in families]

    # What a killed worker of the same number left would be in the way.
    own.unlink(missing_ok=True)
    try:
        server = await asyncio.start_unix_server(answer, own)
    except OSError as exc:
        log.warning("metrics of processes not joined", extra={"folder": str(folder), "reason": str(exc)})
        yield
        return
    metrics.add_processes(read_others)
    try:
        yield
    finally:
        server.close()
        own.unlink(missing_ok=True)


async def _read(path: Path) -> list[Family]:
    """Nothing of a worker that has just ended, or that does not answer in time."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return _decoder.decode(await reader.read())
            finally:
                writer.close()
    except (OSError, TimeoutError, msgspec.DecodeError) as exc:
        log.warning("metrics of a worker not read", extra={"worker": path.name, "reason": type(exc).__name__})
        return []

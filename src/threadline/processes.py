"""Which processes of this machine run, by lock files that the kernel releases when a process ends, however it ends.

A process names itself `BOOT-PID-ID`: a digest of the machine's boot id, its pid, and an id that contains the time.
While it runs it holds a lock on the file of that name. Another process that can lock the file knows that the first one
has ended, without waiting for its leases. Nothing follows from a missing file, a folder that cannot be written or
another boot id (another machine, or this one before it was restarted): then the leases decide.

The folder is beside the SQLite file, because each process that writes the database can write there. For PostgreSQL it
is in the user's runtime folder. Containers with separate files see each other's processes only if they share a folder
and name it in the setting `process_folder`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import socket
import stat
import tempfile
import time
import uuid
import weakref
from pathlib import Path

from threadline.core.ids import new_id

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_WORKER = re.compile(r"(?P<boot>[0-9a-f]{12})-\d{1,10}-[0-9a-z]{26}", re.ASCII)
# A file whose process was found ended is kept for so long, far longer than any lease, so that others find it too.
_KEEP_SECONDS = 3600.0
_ENDED_MODE = 0o400


def sqlite_folder(database: Path) -> Path:
    return database.with_name(f"{database.name}-processes")


def runtime_folder() -> Path:
    """For a database on a server: a folder of this user on this machine."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    return Path(given) / "threadline" if given else Path(tempfile.gettempdir()) / f"threadline-{os.getuid()}"


def local_processes(database: str, folder: str = "") -> LocalProcesses:
    """The processes of this machine that use the database at this path or address."""
    if folder:
        return LocalProcesses(Path(folder).expanduser())
    path = database.removeprefix("sqlite:///")
    if "://" in path:
        return LocalProcesses(runtime_folder(), is_private=True)
    return LocalProcesses(None if path == ":memory:" else sqlite_folder(Path(path).expanduser()))


class LocalProcesses:
    """Without a folder nothing is known of other processes. The lock is taken when the name is first asked for."""

    def __init__(self, folder: Path | None, *, is_private: bool = False) -> None:
        """`is_private`: the folder is used only if this user owns it and no other can write there."""
        self._folder = folder
        self._is_private = is_private
        self._worker: str | None = None
        self._lock: int | None = None
        self._crashed: set[str] = set()
        """What `has_new_crash` has told."""
        _open_processes.add(self)

    @property
    def worker(self) -> str:
        if self._worker is None:
            self._worker = f"{_boot()}-{os.getpid()}-{new_id()}"
            # Without a lock file this process is unknown to others, who wait for its leases instead.
            with contextlib.suppress(OSError):
                self._lock = self._take_lock(self._worker)
        return self._worker

    def is_running(self, worker: str) -> bool | None:
        if self._folder is None:
            return None
        named = _WORKER.fullmatch(worker)
        if named is None or named["boot"] != _boot() or not self._is_safe(self._folder):
            return None
        try:
            return not _has_ended(self._folder / worker)
        except OSError:
            return None

    def has_new_crash(self) -> bool:
        if self._folder is None or self._worker is None or not self._is_safe(self._folder):
            return False
        try:
            found = {file.name for file in self._folder.iterdir() if file.name != self._worker}
        except OSError:
            return False
        self._crashed &= found
        crashed = {name for name in found - self._crashed if self.is_running(name) is False}
        self._crashed |= crashed
        return bool(crashed)

    def close(self) -> None:
        if self._lock is None or self._folder is None or self._worker is None:
            return
        # Removed before it is released: no process can find it without a lock.
        with contextlib.suppress(OSError):
            (self._folder / self._worker).unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        os.close(self._lock)
        self._lock = None

    def leave_to_parent(self) -> None:
        """For a forked child: the lock stays the parent's, and the child gets a name of its own."""
        if self._lock is not None:
            # Closed and not unlocked: the lock belongs to the open file, which the parent still has.
            os.close(self._lock)
        self._worker = self._lock = None

    def _take_lock(self, worker: str) -> int | None:
        if self._folder is None:
            return None
        while True:
            self._folder.mkdir(mode=0o700 if self._is_private else 0o777, parents=True, exist_ok=True)
            if not self._is_safe(self._folder):
                return None
            try:
                # Not inherited by programs that this process starts: they would keep the lock.
                lock = os.open(self._folder / worker, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                # Another process that closed has removed the empty folder.
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                # A file system without locks: an unlocked file would say that this process has ended.
                (self._folder / worker).unlink()
                os.close(lock)
                return None
            _remove_old(self._folder, worker)
            return lock

    def _is_safe(self, folder: Path) -> bool:
        """In a folder that others can write, they could put an unlocked file in the place of a locked one."""
        if not self._is_private:
            return True
        try:
            found = folder.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _has_ended(file: Path) -> bool:
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Shared, so that two processes that look at the same time do not take each other for the holder.
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(opened)
    return True


def _remove_old(folder: Path, worker: str) -> None:
    """Marks the files of processes that have ended, and removes those that were marked long ago."""
    for file in folder.iterdir():
        # Another process may remove it at the same time.
        with contextlib.suppress(OSError):
            if file.name == worker or not _WORKER.fullmatch(file.name) or not _has_ended(file):
                continue
            found = file.stat()
            if stat.S_IMODE(found.st_mode) != _ENDED_MODE:
                file.chmod(_ENDED_MODE)
                os.utime(file)
            elif time.time() - found.st_mtime > _KEEP_SECONDS:
                file.unlink()


@functools.cache
def _boot() -> str:
    try:
        boot = _BOOT_ID.read_text()
    except OSError:
        # Not Linux: the machine's name and address, which stay when it is restarted.
        boot = f"{socket.gethostname()} {uuid.getnode()}"
    return hashlib.sha256(boot.encode()).hexdigest()[:12]


_open_processes: weakref.WeakSet[LocalProcesses] = weakref.WeakSet()


def _forked() -> None:
    for processes in _open_processes:
        processes.leave_to_parent()


os.register_at_fork(after_in_child=_forked)

"""A disk that fills up, fails to sync and counts its syncs: SQLite's own file system with a hand on every write.

It is the default for databases opened while it is in use, so the store under test is opened as always.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

_REAL = "unix"


class Disk(apsw.VFS):
    def __init__(self) -> None:
        self.is_full = False
        self.syncs_fail = False
        self.syncs = 0
        self.slow_thread: str | None = None
        """Whose syncs last until `answers` is set."""
        self.is_waiting = threading.Event()
        self.answers = threading.Event()
        super().__init__("threadline-test-disk", _REAL, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> DiskFile:  # noqa: N802
        return DiskFile(self, name, flags)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(_REAL, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._disk.is_full:
            raise apsw.FullError("no space left on device")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.syncs += 1
        if self._disk.syncs_fail:
            raise apsw.IOError("the disk does not answer")
        if threading.current_thread().name == self._disk.slow_thread:
            self._disk.is_waiting.set()
            self._disk.answers.wait(30)
        super().xSync(flags)


@contextmanager
def a_disk() -> Iterator[Disk]:
    disk = Disk()
    try:
        yield disk
    finally:
        disk.is_full = disk.syncs_fail = False
        disk.answers.set()
        disk.unregister()

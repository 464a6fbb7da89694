"""Moves the write-ahead log into the database file, in a thread and on a connection of its own.

Left to SQLite, the commit that makes the log long enough moves all of it, and whoever waits for that commit waits
for a hundred others' pages. Here most of the log is moved while commits go on. What they add meanwhile is little; the
writer moves that itself, between two transactions, because only a log that was moved to its end is begun anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

import apsw

from threadline.core.errors import ThreadlineError
from threadline.stores.sqlite.connection import Location, connect, translate

_LONG_PAGES = 1_000
_log = logging.getLogger(__name__)


class Checkpoints:
    def __init__(self, location: Location, on_moved: Callable[[], None]) -> None:
        """`on_moved` asks the writer, from another thread, to call `finish`."""
        self._location = location
        self._on_moved = on_moved
        self._due_pages = _LONG_PAGES
        self._wake = threading.Semaphore(0)
        self._is_moving = False
        self.moving = threading.Lock()
        """Held by the thread while it moves; by anyone else who must have the log to itself."""
        self._closing = False
        self._thread: threading.Thread | None = None

    def watch(self, connection: apsw.Connection) -> None:
        """From now on commits of this connection move nothing themselves."""
        connection.set_wal_hook(self._committed)

    def _committed(self, connection: apsw.Connection, name: str, pages: int) -> int:
        if pages >= self._due_pages and not self._is_moving:
            self._is_moving = True
            self._wake.release()
            if self._thread is None:
                self._thread = threading.Thread(target=self._live, name="threadline-checkpoints", daemon=True)
                self._thread.start()
        return apsw.SQLITE_OK

    def close(self) -> None:
        """Waits for what is being moved."""
        self._closing = True
        self._wake.release()
        if self._thread is not None:
            self._thread.join()

    def finish(self, connection: apsw.Connection) -> None:
        """Moves what is left, on the writer's connection."""
        pages, moved = self._move(connection)
        # Where a reader holds on to it, it is not tried again with every commit.
        self._due_pages = _LONG_PAGES if moved == pages else pages + _LONG_PAGES
        self._is_moving = False

    def _live(self) -> None:
        try:
            connection = connect(self._location)
        except ThreadlineError as exc:
            _log.warning("the write-ahead log stays long: %s", exc)
            return
        while self._wake.acquire() and not self._closing:
            with self.moving:
                self._move(connection)
            self._on_moved()
        with suppress(apsw.Error):
            connection.close()

    def _move(self, connection: apsw.Connection) -> tuple[int, int]:
        """How many pages the log has, and how many of them are in the file now."""
        try:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as exc:
            _log.warning("the write-ahead log stays long: %s", translate(exc, self._location.shown))
            return self._due_pages, 0

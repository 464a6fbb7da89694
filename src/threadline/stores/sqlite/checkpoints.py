"""Moves the write-ahead log into the database file, in a thread and on a connection of its own.

Left to SQLite, the commit that makes the log long enough would move all of it, and its caller would wait for the pages
of a hundred other commits. This thread moves most of the log while commits continue. The writer moves the small rest
between two transactions, because SQLite restarts the log only after all of it was moved.
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
"""Length of the log, in pages of 8 kB, from which it is moved. SQLite's own default."""
_log = logging.getLogger(__name__)


class Checkpoints:
    def __init__(self, location: Location, on_moved: Callable[[], None]) -> None:
        """`on_moved` asks the writer, from the checkpoint thread, to call `finish`."""
        self._location = location
        self._on_moved = on_moved
        self._due_pages = _LONG_PAGES
        # A semaphore and not an event: a wake-up between two waits must not be lost.
        self._wake = threading.Semaphore(0)
        self._is_moving = False
        self.lock = threading.Lock()
        """Held by the thread while it moves pages, and by a caller that must have the log to itself."""
        self._closing = False
        # Started with the first long log: most databases of a test or a command never have one.
        self._thread: threading.Thread | None = None

    def attach(self, connection: apsw.Connection) -> None:
        """Replaces SQLite's automatic checkpoints on this connection."""
        connection.set_wal_hook(self._committed)

    def _committed(self, connection: apsw.Connection, name: str, pages: int) -> int:
        if pages >= self._due_pages and not self._is_moving:
            self._is_moving = True
            self._wake.release()
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="threadline-checkpoints", daemon=True)
                self._thread.start()
        return apsw.SQLITE_OK

    def close(self) -> None:
        """Waits until the thread has ended."""
        self._closing = True
        self._wake.release()
        if self._thread is not None:
            self._thread.join()

    def finish(self, connection: apsw.Connection) -> None:
        """Moves the rest of the log, on the writer's connection."""
        pages, moved = self._move(connection)
        # A reader that still needs the log blocks the move: wait for more pages instead of trying at every commit.
        self._due_pages = _LONG_PAGES if moved == pages else pages + _LONG_PAGES
        self._is_moving = False

    def _loop(self) -> None:
        try:
            connection = connect(self._location)
        except ThreadlineError as exc:
            _log.warning("write-ahead log not checkpointed: %s", exc)
            return
        while self._wake.acquire() and not self._closing:
            with self.lock:
                self._move(connection)
            self._on_moved()
        # A failed close loses nothing: the writer's close, or the next open, completes the checkpoint.
        with suppress(apsw.Error):
            connection.close()

    def _move(self, connection: apsw.Connection) -> tuple[int, int]:
        """Returns how many pages the log has, and how many of them are in the file now."""
        try:
            # PASSIVE does not wait for readers or writers.
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as exc:
            _log.warning("write-ahead log not checkpointed: %s", translate(exc, self._location.shown))
            return self._due_pages, 0

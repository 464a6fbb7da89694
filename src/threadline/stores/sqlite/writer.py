"""Group commit for SQLite: decides which thread writes, and when.

A lone small write runs directly on the event-loop thread. Concurrent or large writes are queued to one writer thread,
which commits everything queued in one transaction and indexes search terms when idle. No caller gets a result before
its write is durable. The direct path is taken only if no other caller writes, no other process holds the file and the
disk syncs quickly, so it blocks the event loop for about one sync.

Moves the write-ahead log into the database file, in a thread and on a connection of its own.

Left to SQLite, the commit that makes the log long enough would move all of it, and its caller would wait for the pages
of a hundred other commits. This thread moves most of the log while commits continue. The writer moves the small rest
between two transactions, because SQLite restarts the log only after all of it was moved.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from enum import Enum
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

import apsw

from threadline.core.errors import StoreUnavailable, ThreadlineError
from threadline.stores.sqlite.connection import Location, connect, translate
from threadline.stores.sqlite.group_commit import Committer, Job, JobResult, Outcome, resolve
from threadline.stores.sqlite.session import Database

T = TypeVar("T")

_log = logging.getLogger(__name__)
_LARGEST_BATCH = 512
_LONGEST_BATCH_SECONDS = 0.005
"""How long a batch accepts jobs that arrive while it runs. Bounds the latency of its first job."""
_IDLE_SECONDS = 0.005
"""Without a write for so long the store counts as idle: long against an append (50 µs), short against a user."""
_HOUSEKEEPING_SECONDS = 0.06
"""Housekeeping waits for an idle moment, but at most this long: a busy store must index its messages as well."""
_QUICK_SYNC_SECONDS = 0.002
"""A disk that syncs more slowly is waited for in the writer thread, so that the event loop can serve readers."""
_LONGEST_HOLD_SECONDS = 0.001
"""How long successive direct writes may occupy the event loop before other tasks run."""
_EXIT_SECONDS = 5.0
"""How long interpreter exit waits for a store that was never closed."""


class Control(Enum):
    """Messages to the writer thread that are not jobs."""

    STOP = "stop"
    WAKE = "wake"
    LOG_MOVED = "log moved"


WriterLoop: TypeAlias = Generator[float | None, Job | Control | None, None]
"""Yields how long to wait for the next item of the queue, None for as long as it takes, and is sent that item, or None
if there was none in time."""


class WriterThread:
    """The queue and the thread that runs a writer's loop. The simulation in tests has one without a thread."""

    def __init__(self, loop: WriterLoop) -> None:
        self._queue: SimpleQueue[Job | Control] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="threadline-writer", daemon=True)
        self._thread.start()

    def put(self, item: Job | Control) -> None:
        self._queue.put(item)

    def take(self) -> Job | Control:
        """The next item of a queue that is not empty. Only for the loop."""
        return self._queue.get()

    def waiting(self) -> int:
        return self._queue.qsize()

    def join(self, seconds: float | None = None) -> None:
        """Waits until the loop has ended. Returns at once inside the loop, which must not wait for itself."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _run(self, loop: WriterLoop) -> None:
        item: Job | Control | None = None
        with suppress(StopIteration):
            while True:
                timeout = loop.send(item)
                try:
                    item = self._queue.get(timeout=timeout)
                except Empty:
                    item = None


class Writer:
    def __init__(
        self,
        database: Database,
        *,
        on_touched: Callable[[set[tuple[str, str]]], None],
        housekeeping: Callable[[], bool],
    ) -> None:
        """`housekeeping` does a small piece of deferred work, outside any transaction, and returns whether more is
        left."""
        self._database = database
        self._connection = database.connection
        self._housekeeping = housekeeping
        # The connection is not thread-safe: the writer thread or a direct write holds this lock while it uses it.
        self._connection_lock = threading.Lock()
        self._checkpoints = Checkpoints(database.location, self._finish_checkpoint)
        self._checkpoints.attach(self._connection)
        self._committer = Committer(database, on_touched, self._checkpoints.lock)
        self._stopping = False
        self._asleep = False
        """Whether the thread waits without a timeout, so that a direct write has to wake it for housekeeping."""
        self._yielding = False
        self._wrote_at = 0.0
        self._yielded_at = 0.0
        self._wake_scheduled_until = 0.0
        self._contended_until = 0.0
        self._housekeeping_due = 0.0
        self._thread = WriterThread(self._loop())

    async def write(self, work: Callable[[], T]) -> T:
        """Runs a small job, directly if possible: waking the thread takes a third of an append's time."""
        outcome = self._try_directly(work)
        if outcome is None:
            return await self.submit(work)
        if self._wrote_at > self._yielded_at + _LONGEST_HOLD_SECONDS:
            await self._yield_to_loop()
        if outcome.error is not None:
            raise outcome.error
        # Outcome is untyped: it also carries the results of batches.
        value: T = outcome.value
        return value

    async def _yield_to_loop(self) -> None:
        """Lets other tasks run. A task that appends in a loop would otherwise never give up the event loop."""
        self._yielding = True
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding = False
        self._yielded_at = time.monotonic()

    def _try_directly(self, work: Callable[[], T]) -> Outcome | None:
        """Runs the job on this thread; None if it would have to wait for other writers or for a slow disk."""
        contended = self._yielding or self._thread.waiting() > 0 or time.monotonic() < self._contended_until
        if contended or self._committer.sync_seconds > _QUICK_SYNC_SECONDS:
            return None
        # Not blocking: if the writer thread has the connection, the job can share its next commit.
        if not self._connection_lock.acquire(blocking=False):
            return None
        try:
            outcome = None if self._stopping else self._committer.try_commit_now(work)
        finally:
            self._connection_lock.release()
        self._wrote_at = time.monotonic()
        if self._asleep and self._wrote_at > self._wake_scheduled_until:
            # Later, because waking the thread now would cost this caller what the direct write saved. If the event loop
            # ends before the timer fires, a later write schedules another.
            self._wake_scheduled_until = self._wrote_at + _HOUSEKEEPING_SECONDS
            asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._thread.put, Control.WAKE)
        return outcome

    def submit(self, work: Callable[[], T], *, may_fail_late: bool = False) -> asyncio.Future[T]:
        """Queues a job. The future resolves when its result is durable. Cancelling it before the job has started
        drops the job; afterwards the job completes."""
        if self._stopping:
            raise StoreUnavailable(f"{self._database.location.shown} is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._thread.put(Job(work, future, may_fail_late))
        return future

    @property
    def waiting(self) -> int:
        return self._thread.waiting()

    def others_version(self) -> int:
        """A number that changes when another process commits. While the thread writes, the value at the start of its
        transaction."""
        # Not blocking: this runs on the event-loop thread, and a value that is one transaction old is good enough.
        if not self._connection_lock.acquire(blocking=False):
            return self._committer.others_version
        try:
            return self._committer.others_version if self._stopping else self._committer.read_others_version()
        finally:
            self._connection_lock.release()

    def stop(self) -> None:
        """Finishes the submitted jobs, then ends the thread. Safe to call twice and from any thread."""
        if not self._stopping:
            self._stopping = True
            self._thread.put(Control.STOP)

    def finish(self) -> None:
        """Stops, and waits until the thread has ended. A job must not call it."""
        self.stop()
        self._thread.join()

    def finish_at_exit(self) -> None:
        """`finish` for a store that was never closed. The garbage collector may call it on any thread, also on the
        writer's."""
        self.stop()
        # Bounded, so that a stuck disk cannot keep the interpreter from exiting.
        self._thread.join(_EXIT_SECONDS)

    def abandon(self) -> None:
        """For a forked child process, where the thread does not exist: accepts no job and touches no connection."""
        self._stopping = True

    def _finish_checkpoint(self) -> None:
        self._thread.put(Control.LOG_MOVED)

    def _loop(self) -> WriterLoop:
        timeout: float | None = 0.0
        while True:
            job = yield timeout
            if job is None:
                timeout = self._when_idle()
                continue
            if self._asleep:
                # A burst of writes may follow: housekeeping waits for its end, up to its deadline.
                self._asleep, self._housekeeping_due = False, time.monotonic() + _HOUSEKEEPING_SECONDS
            if job is Control.STOP:
                break
            if isinstance(job, Job):
                with self._connection_lock:
                    results = self._commit_batch(job)
                # After the lock is released: resolving wakes callers that may want to write directly.
                resolve(results)
            elif job is Control.LOG_MOVED:
                with self._connection_lock:
                    self._checkpoints.finish(self._connection)
            if time.monotonic() > self._housekeeping_due:
                self._run_housekeeping()
            timeout = _IDLE_SECONDS
        self._close()

    def _when_idle(self) -> float | None:
        """Runs housekeeping if the store is idle. Returns the timeout of the next wait; None means no timeout."""
        now = time.monotonic()
        if now < self._wrote_at + _IDLE_SECONDS and now < self._housekeeping_due:
            return _IDLE_SECONDS
        # Set before the last look for work: a direct write after that look sees it and wakes the thread.
        self._wake_scheduled_until, self._asleep = 0.0, True
        if self._run_housekeeping():
            self._asleep = False
            return 0.0
        return None

    def _run_housekeeping(self) -> bool:
        more = False
        with self._connection_lock:
            try:
                more = self._housekeeping()
            except Exception:  # noqa: BLE001 - logged
                # The same: the thread must live on.
                _log.exception("housekeeping failed")
        self._housekeeping_due = time.monotonic() + _HOUSEKEEPING_SECONDS
        return more

    def _close(self) -> None:
        self._checkpoints.close()
        # Closing moves the log into the file. If that fails, the log keeps everything and the next process that opens
        # the file moves it.
        with self._connection_lock, suppress(apsw.Error):
            self._connection.close()

    def _commit_batch(self, first: Job) -> list[JobResult]:
        taken: list[Job] = []
        jobs = self._take_jobs(first, taken)
        try:
            results = self._committer.commit_together(jobs, taken, lambda: self._thread.waiting() > 0)
        except Exception as exc:  # noqa: BLE001 - logged, and given to the callers
            # Whatever it is, the thread must live on: without it every later write would wait for ever.
            _log.exception("commit failed")
            results = self._committer.fail(taken, exc)
        if len(taken) > 1:
            # Several callers write: for a moment everyone queues, so that they share commits.
            self._contended_until = time.monotonic() + _IDLE_SECONDS
        return results

    def _take_jobs(self, first: Job, taken: list[Job]) -> Iterator[Job]:
        """The first job, the jobs queued behind it, and those that arrive while these run, within bounds."""
        deadline = time.monotonic() + _LONGEST_BATCH_SECONDS
        job: Job | Control = first
        while isinstance(job, Job):
            if not job.future.cancelled():
                taken.append(job)
                yield job
            if len(taken) >= _LARGEST_BATCH or not self._thread.waiting() or time.monotonic() > deadline:
                return
            job = self._thread.take()
        # A control message arrived between the jobs: put it back for the loop.
        self._thread.put(job)


_LONG_PAGES = 1_000
"""Length of the log, in pages of 8 kB, from which it is moved. SQLite's own default."""


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

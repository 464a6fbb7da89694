"""The one thread that writes, and group commit.

Whatever waits is done in one transaction and becomes durable with one sync of the disk; nobody is answered before
that. A job that fails takes nothing with it: verbs check before they write, and a piece of work that may fail later
has a savepoint when it is in company. Should a transaction be lost all the same (the disk is full, say), its jobs are
done again one by one, each in a transaction of its own, so that each gets the answer it deserves.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import apsw

from threadline.core.errors import OutcomeUnknown, StoreUnavailable
from threadline.stores.sqlite.connection import scrub, translate
from threadline.stores.sqlite.session import Database

T = TypeVar("T")
_log = logging.getLogger(__name__)

_LARGEST_BATCH = 512
_LONGEST_BATCH_SECONDS = 0.005
"""How long a batch keeps taking in what arrives while it runs, before it commits."""
_WRITTEN_ANEW_BYTES = 64 * 2**20
"""Up to this size a file is written anew after a purge, within about half a second; a larger one by `compact`."""
_PEACE_SECONDS = 0.005
_ERRANDS_EVERY_SECONDS = 0.06
"""Errands wait for a moment of peace, but not for ever where there is none."""
_EXIT_SECONDS = 5.0


class Job(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    may_fail_late: bool
    """Whether it can raise after it has written something."""


class Outcome(NamedTuple):
    future: asyncio.Future[Any]
    value: Any
    error: BaseException | None


class _BatchLost(Exception):
    """The transaction is gone, with everything that was done in it."""


class Writer:
    def __init__(
        self,
        database: Database,
        *,
        on_touched: Callable[[set[tuple[str, str]]], None],
        errands: Callable[[], bool],
    ) -> None:
        """`errands` does a little of what can wait, outside any transaction, and says whether there is more."""
        self._database = database
        self._connection = database.connection
        self._on_touched = on_touched
        self._errands = errands
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._live, name="threadline-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], *, may_fail_late: bool = False) -> asyncio.Future[T]:
        """The job's answer, once it is durable. Cancelling it before it began drops it; after that, it is done."""
        if self._stopping:
            raise StoreUnavailable(f"{self._database.location.shown} is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(Job(work, future, may_fail_late))
        return future

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def stop(self) -> None:
        """Lets what was submitted finish, then ends the thread. Safe to call twice, from anywhere."""
        if not self._stopping:
            self._stopping = True
            self._queue.put(None)

    def finish(self) -> None:
        """Stops, and waits until the thread has ended. Not to be called by a job."""
        self.stop()
        self._thread.join()

    def finish_at_exit(self) -> None:
        """The same for a store that nobody closed, from whichever thread let go of it last, and not for ever."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(_EXIT_SECONDS)

    def abandon(self) -> None:
        """In a forked process, where the thread does not exist: takes nothing more, touches nothing."""
        self._stopping = True

    def _live(self) -> None:
        rest: float | None = 0.0
        errands_due = 0.0
        while True:
            try:
                job = self._queue.get(timeout=rest)
            except Empty:
                rest = 0.0 if self._errands() else None
                continue
            if job is None:
                break
            _answer(self._do(job))
            if time.monotonic() > errands_due:
                self._errands()
                errands_due = time.monotonic() + _ERRANDS_EVERY_SECONDS
            rest = _PEACE_SECONDS
        with suppress(apsw.Error):
            # Closing moves the log into the file; if that fails, the log keeps everything, and the next to open it
            # does the rest.
            self._connection.close()

    def _do(self, first: Job) -> list[Outcome]:
        taken: list[Job] = []
        jobs = self._arriving(first, taken)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as exc:
            # Everyone has waited long enough for a lock that another process holds.
            error = translate(exc, self._database.location.shown)
            return [Outcome(job.future, None, error) for job in jobs]
        try:
            outcomes = self._together(jobs)
            self._connection.execute("COMMIT")
        except (_BatchLost, apsw.Error):
            self._roll_back()
            return [self._alone(job) for job in taken]
        self._after_commit()
        return outcomes

    def _arriving(self, first: Job, taken: list[Job]) -> Iterator[Job]:
        """The first job, whatever waits behind it, and what comes while those are done, within bounds."""
        give_up = time.monotonic() + _LONGEST_BATCH_SECONDS
        job: Job | None = first
        while job is not None:
            if not job.future.cancelled():
                taken.append(job)
                yield job
            if len(taken) >= _LARGEST_BATCH or self._queue.empty() or time.monotonic() > give_up:
                return
            job = self._queue.get()
        # The sign to stop came in between; it is for the thread to see.
        self._queue.put(None)

    def _together(self, jobs: Iterator[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for job in jobs:
            guarded = job.may_fail_late and not (self._queue.empty() and not outcomes)
            outcomes.append(self._in_company(job, guarded=guarded, first=not outcomes))
        return outcomes

    def _in_company(self, job: Job, *, guarded: bool, first: bool) -> Outcome:
        changes = self._connection.total_changes()
        if guarded:
            self._connection.execute("SAVEPOINT job")
        try:
            value = job.work()
        except BaseException as exc:
            if guarded and self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO job")
                self._connection.execute("RELEASE job")
            elif first:
                self._roll_back()
                self._connection.execute("BEGIN IMMEDIATE")
            elif not self._connection.in_transaction or self._connection.total_changes() != changes:
                raise _BatchLost from exc
            return Outcome(job.future, None, exc)
        if guarded:
            self._connection.execute("RELEASE job")
        return Outcome(job.future, value, None)

    def _alone(self, job: Job) -> Outcome:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            value = job.work()
            self._commit_alone()
        except BaseException as exc:  # noqa: BLE001 whatever it is, it is the caller's to see
            self._roll_back()
            error = translate(exc, self._database.location.shown) if isinstance(exc, apsw.Error) else exc
            return Outcome(job.future, None, error)
        self._after_commit()
        return Outcome(job.future, value, None)

    def _commit_alone(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.IOError as exc:
            # The commit may stand in the log although the sync failed; whoever opens the file next may find it.
            raise OutcomeUnknown(f"{self._database.location.shown}: {exc}: repeat the call with the same key") from exc

    def _roll_back(self) -> None:
        self._database.touched.clear()
        self._database.scrub = False
        if self._connection.in_transaction:
            with suppress(apsw.Error):
                # Where it fails, SQLite has rolled back by itself.
                self._connection.execute("ROLLBACK")

    def _after_commit(self) -> None:
        database = self._database
        if database.touched:
            touched, database.touched = database.touched, set()
            self._on_touched(touched)
        if database.scrub:
            database.scrub = False
            self._scrub()

    def _scrub(self) -> None:
        """Never fails a job: what it was asked for is durable by now."""
        database = self._database
        size = self._connection.pragma("page_count") * self._connection.pragma("page_size")
        anew, database.compact = database.compact or size <= _WRITTEN_ANEW_BYTES, False
        try:
            scrub(self._connection, anew=anew, lock_seconds=database.lock_seconds)
        except apsw.Error as exc:
            reason = translate(exc, database.location.shown)
            _log.warning("purged text may still be in the file until the next purge: %s", reason)


def _answer(outcomes: list[Outcome]) -> None:
    """Wakes each event loop once, however many of its tasks were waiting."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.future.get_loop(), []).append(outcome)
    for loop, answers in by_loop.items():
        with suppress(RuntimeError):
            # The loop was closed over its tasks: nobody waits any more.
            loop.call_soon_threadsafe(_settle, answers)


def _settle(outcomes: list[Outcome]) -> None:
    for future, value, error in outcomes:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

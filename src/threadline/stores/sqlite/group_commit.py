"""Group commit: runs several write jobs in one transaction, so that one disk sync makes all of them durable.

A job that fails does not affect the others: operations check before they write, and a job that may raise after a write
runs in a savepoint. If the whole transaction is lost (a full disk, for example), each of its jobs is run again in a
transaction of its own and gets its own result. Only one thread at a time may use a `Committer`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import apsw

from threadline.core.errors import OutcomeUnknown
from threadline.stores.sqlite.connection import RetryPolicy, scrub, translate
from threadline.stores.sqlite.session import Database

_log = logging.getLogger(__name__)
_VACUUM_BYTES = 64 * 2**20
"""A file up to this size is rewritten after every purge (about half a second); a larger one only by `compact`."""


class Job(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    may_fail_late: bool
    """Whether it can raise after it has written."""


class Outcome(NamedTuple):
    value: Any
    error: BaseException | None


class JobResult(NamedTuple):
    future: asyncio.Future[Any]
    outcome: Outcome


def resolve(results: Iterable[JobResult]) -> None:
    """Resolves the futures, from any thread. One call per event loop: waking a loop costs more than a result."""
    by_loop: dict[asyncio.AbstractEventLoop, list[JobResult]] = {}
    for result in results:
        by_loop.setdefault(result.future.get_loop(), []).append(result)
    for loop, of_loop in by_loop.items():
        # RuntimeError: the loop is closed, so no task waits for these futures.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_results, of_loop)


def _set_results(results: list[JobResult]) -> None:
    for future, (value, error) in results:
        # The caller may have cancelled it in the meantime.
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class _TransactionLost(Exception):
    """The transaction was rolled back, with every job in it."""


class Committer:
    def __init__(
        self, database: Database, on_touched: Callable[[set[tuple[str, str]]], None], checkpoint_lock: threading.Lock
    ) -> None:
        self._database = database
        self._checkpoint_lock = checkpoint_lock
        self._connection = database.connection
        self._on_touched = on_touched
        self._retry_when_locked = RetryPolicy(database.lock_seconds)
        self.sync_seconds = 0.0
        """Duration of the last commit."""
        # Read at construction: a first read later would look like a commit of another process and wake every watcher.
        self.others_version: int = self._connection.pragma("data_version")
        """A number that changes when another connection commits, as of the last transaction."""

    def commit_together(self, jobs: Iterable[Job], taken: list[Job], has_more: Callable[[], bool]) -> list[JobResult]:
        """Runs the jobs in one transaction. `taken` lists the jobs that were started; `has_more` tells whether more
        jobs wait."""
        # Before the transaction: an error may end the transaction, and what followed would be committed piece by piece.
        self.read_others_version()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as exc:
            # Every job has waited `lock_seconds` for another process, so all of them fail.
            refused = Outcome(None, translate(exc, self._database.location.shown))
            return [JobResult(job.future, refused) for job in jobs]
        try:
            results: list[JobResult] = []
            for job in jobs:
                # A job that shares the transaction needs a savepoint; alone, a rollback of everything is cheaper.
                guarded = job.may_fail_late and (bool(results) or has_more())
                results.append(JobResult(job.future, self._run_in_batch(job, guarded=guarded, first=not results)))
            self._commit()
        except (_TransactionLost, apsw.Error):
            self._roll_back()
            return [JobResult(job.future, self._run_alone(job)) for job in taken]
        self._after_commit()
        return results

    def read_others_version(self) -> int:
        # An error here must not end the poll that asked: the next read sees the change.
        with suppress(apsw.Error):
            self.others_version = self._connection.pragma("data_version")
        return self.others_version

    def try_commit_now(self, work: Callable[[], object]) -> Outcome | None:
        """Runs one job; None, without any effect, if another process holds the write lock."""
        return self._run_and_commit(work) if self._begin_without_waiting() else None

    def _begin_without_waiting(self) -> bool:
        # The busy handler sleeps, and this runs on the event loop's thread: there it must not wait.
        self._connection.set_busy_handler(None)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error:
            # Most likely another process writes. The writer thread waits for it, and reports any other error.
            return False
        finally:
            self._connection.set_busy_handler(self._retry_when_locked)
        return True

    def _run_in_batch(self, job: Job, *, guarded: bool, first: bool) -> Outcome:
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
                # No other job has written yet, so the transaction can start again.
                self._roll_back()
                self._connection.execute("BEGIN IMMEDIATE")
            elif not self._connection.in_transaction or self._connection.total_changes() != changes:
                # It wrote before it failed, without a savepoint: the writes cannot be separated from the other jobs'.
                raise _TransactionLost from exc
            return Outcome(None, exc)
        if guarded:
            self._connection.execute("RELEASE job")
        return Outcome(value, None)

    def _run_alone(self, job: Job) -> Outcome:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as exc:
            return Outcome(None, translate(exc, self._database.location.shown))
        return self._run_and_commit(job.work)

    def _run_and_commit(self, work: Callable[[], object]) -> Outcome:
        """Runs one job in the transaction that was begun for it."""
        try:
            value = work()
            self._commit_alone()
        except BaseException as exc:  # noqa: BLE001 every error belongs to the caller of the job
            self._roll_back()
            return Outcome(None, translate(exc, self._database.location.shown) if isinstance(exc, apsw.Error) else exc)
        self._after_commit()
        return Outcome(value, None)

    def _commit_alone(self) -> None:
        try:
            self._commit()
        except apsw.IOError as exc:
            # The commit may be in the write-ahead log although its sync failed: the next process that opens the file
            # may find it.
            raise OutcomeUnknown(f"{self._database.location.shown}: {exc}: repeat the call with the same key") from exc

    def _commit(self) -> None:
        before = time.monotonic()
        self._connection.execute("COMMIT")
        self.sync_seconds = time.monotonic() - before

    def fail(self, jobs: Iterable[Job], exc: Exception) -> list[JobResult]:
        """The results of jobs whose commit raised an error that no code expects: what was stored is unknown."""
        self._roll_back()
        error = OutcomeUnknown(f"{self._database.location.shown}: {exc}: repeat the call with the same key")
        return [JobResult(job.future, Outcome(None, error)) for job in jobs]

    def _roll_back(self) -> None:
        self._database.touched.clear()
        self._database.scrub = False
        if self._connection.in_transaction:
            # If ROLLBACK fails, SQLite has already rolled back.
            with suppress(apsw.Error):
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
        """Removes purged text from the file. Never fails a job, because the job is already durable."""
        database = self._database
        size = self._connection.pragma("page_count") * self._connection.pragma("page_size")
        rewrite, database.compact = database.compact or size <= _VACUUM_BYTES, False
        progress, database.progress = database.progress, None
        database.scrub_error = None
        try:
            # The checkpoint thread may be moving the log at this moment; VACUUM and TRUNCATE need it to themselves.
            with self._checkpoint_lock:
                scrub(self._connection, rewrite=rewrite, lock_seconds=database.lock_seconds, progress=progress)
        except apsw.Error as exc:
            database.scrub_error = translate(exc, database.location.shown)
            _log.warning("purged text may still be in the file until the next purge: %s", database.scrub_error)

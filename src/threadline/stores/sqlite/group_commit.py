"""Transactions on the writer's connection: several jobs in one, or one alone.

Whatever is done together becomes durable with one sync of the disk. A job that fails takes nothing with it: verbs check
before they write, and a piece of work that may fail later has a savepoint when it is in company. Should a transaction
be lost all the same (the disk is full, say), its jobs are done again one by one, each in a transaction of its own, so
that each gets the answer it deserves. Only one thread at a time may use it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import apsw

from threadline.core.errors import OutcomeUnknown
from threadline.stores.sqlite.connection import RetryPolicy, scrub, translate
from threadline.stores.sqlite.jobs import Job, JobResult, Outcome
from threadline.stores.sqlite.session import Database

_log = logging.getLogger(__name__)
_WRITTEN_ANEW_BYTES = 64 * 2**20
"""Up to this size a file is written anew after a purge, within about half a second; a larger one by `compact`."""


class _BatchLost(Exception):
    """The transaction is gone, with everything that was done in it."""


class Committer:
    def __init__(
        self, database: Database, on_touched: Callable[[set[tuple[str, str]]], None], log_moving: threading.Lock
    ) -> None:
        self._database = database
        self._log_moving = log_moving
        self._connection = database.connection
        self._on_touched = on_touched
        self._patience = RetryPolicy(database.lock_seconds)
        self.sync_seconds = 0.0
        """How long the last commit took."""
        self.others_version: int = self._connection.pragma("data_version")
        """A number that changes whenever another connection has committed; as it was at the last batch."""

    def together(self, jobs: Iterable[Job], taken: list[Job], is_company: Callable[[], bool]) -> list[JobResult]:
        """`taken` are those of the jobs that were begun; `is_company` says whether more are waiting."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as exc:
            # Everyone has waited long enough for a lock that another process holds.
            refused = Outcome(None, translate(exc, self._database.location.shown))
            return [JobResult(job.future, refused) for job in jobs]
        self.look_at_others()
        try:
            answers: list[JobResult] = []
            for job in jobs:
                guarded = job.may_fail_late and (bool(answers) or is_company())
                answers.append(JobResult(job.future, self._in_company(job, guarded=guarded, first=not answers)))
            self._commit()
        except (_BatchLost, apsw.Error):
            self._roll_back()
            return [JobResult(job.future, self._alone(job)) for job in taken]
        self._after_commit()
        return answers

    def look_at_others(self) -> int:
        self.others_version = self._connection.pragma("data_version")
        return self.others_version

    def at_once(self, work: Callable[[], object]) -> Outcome | None:
        """One job alone; None, and nothing done, if it would have to wait for another process."""
        return self._to_its_end(work) if self._begin_without_waiting() else None

    def _begin_without_waiting(self) -> bool:
        self._connection.set_busy_handler(None)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error:
            # Another process writes, most likely; the thread has the patience, and the words for everything else.
            return False
        finally:
            self._connection.set_busy_handler(self._patience)
        return True

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
            return Outcome(None, exc)
        if guarded:
            self._connection.execute("RELEASE job")
        return Outcome(value, None)

    def _alone(self, job: Job) -> Outcome:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as exc:
            return Outcome(None, translate(exc, self._database.location.shown))
        return self._to_its_end(job.work)

    def _to_its_end(self, work: Callable[[], object]) -> Outcome:
        """One job in the transaction that was begun for it."""
        try:
            value = work()
            self._commit_alone()
        except BaseException as exc:  # noqa: BLE001 whatever it is, it is the caller's to see
            self._roll_back()
            return Outcome(None, translate(exc, self._database.location.shown) if isinstance(exc, apsw.Error) else exc)
        self._after_commit()
        return Outcome(value, None)

    def _commit_alone(self) -> None:
        try:
            self._commit()
        except apsw.IOError as exc:
            # The commit may stand in the log although the sync failed; whoever opens the file next may find it.
            raise OutcomeUnknown(f"{self._database.location.shown}: {exc}: repeat the call with the same key") from exc

    def _commit(self) -> None:
        before = time.monotonic()
        self._connection.execute("COMMIT")
        self.sync_seconds = time.monotonic() - before

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
        progress, database.progress = database.progress, None
        database.unscrubbed = None
        try:
            # The log may be on its way into the file at this moment, on a disk that takes its time.
            with self._log_moving:
                scrub(self._connection, anew=anew, lock_seconds=database.lock_seconds, progress=progress)
        except apsw.Error as exc:
            database.unscrubbed = translate(exc, database.location.shown)
            _log.warning("purged text may still be in the file until the next purge: %s", database.unscrubbed)

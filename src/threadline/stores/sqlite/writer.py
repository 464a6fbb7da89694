"""Who writes, and when: a caller alone at once, several through one thread, which commits whatever waits together.

Nobody is answered before what they asked for is durable. The thread also runs errands, in moments of peace where there
are any. A caller writes at once, in its event loop's thread, only what is small, and only while nobody else writes, no
other process holds the file, and the disk syncs quickly; so the loop stands still for about as long as one sync.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

import apsw

from threadline.core.errors import StoreUnavailable
from threadline.stores.sqlite.checkpoints import Checkpoints
from threadline.stores.sqlite.group_commit import Committer
from threadline.stores.sqlite.jobs import Job, JobResult, Note, Outcome, tell
from threadline.stores.sqlite.session import Database

T = TypeVar("T")

_LARGEST_BATCH = 512
_LONGEST_BATCH_SECONDS = 0.005
"""How long a batch keeps taking in what arrives while it runs, before it commits."""
_PEACE_SECONDS = 0.005
_ERRANDS_EVERY_SECONDS = 0.06
"""Errands wait for a moment of peace, but not for ever where there is none."""
_QUICK_SYNC_SECONDS = 0.002
"""A disk that takes longer is waited for in the thread, where it keeps nobody from reading."""
_LONGEST_HOLD_SECONDS = 0.001
"""How long one caller after another may write at once before the event loop sees to everyone else."""
_EXIT_SECONDS = 5.0


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
        self._errands = errands
        self._queue: SimpleQueue[Job | Note] = SimpleQueue()
        self._turn = threading.Lock()
        """Held by whoever uses the connection: the thread, or a caller that writes at once."""
        self._checkpoints = Checkpoints(database.location, partial(self._queue.put, Note.LOG_MOVED))
        self._checkpoints.watch(self._connection)
        self._committer = Committer(database, on_touched, self._checkpoints.moving)
        self._stopping = False
        self._asleep = False
        self._making_way = False
        self._wrote_at = self._made_way_at = self._woken_by = self._crowded_until = self._errands_due = 0.0
        self._thread = threading.Thread(target=self._live, name="threadline-writer", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[], T]) -> T:
        """A small job, done at once where nobody else writes: to wake a thread takes a third of an append's time."""
        outcome = self._at_once(work)
        if outcome is None:
            return await self.submit(work)
        if self._wrote_at > self._made_way_at + _LONGEST_HOLD_SECONDS:
            await self._make_way()
        if outcome.error is not None:
            raise outcome.error
        value: T = outcome.value
        return value

    async def _make_way(self) -> None:
        """Whoever appends in a loop must not keep the event loop from everyone else; nor need it after each."""
        self._making_way = True
        try:
            await asyncio.sleep(0)
        finally:
            self._making_way = False
        self._made_way_at = time.monotonic()

    def _at_once(self, work: Callable[[], T]) -> Outcome | None:
        """None where it would have to wait: for others, who may as well share a commit, or for a slow disk."""
        crowded = self._making_way or not self._queue.empty() or time.monotonic() < self._crowded_until
        if crowded or self._committer.sync_seconds > _QUICK_SYNC_SECONDS or not self._turn.acquire(blocking=False):
            return None
        try:
            outcome = None if self._stopping else self._committer.at_once(work)
        finally:
            self._turn.release()
        self._wrote_at = time.monotonic()
        if self._asleep and self._wrote_at > self._woken_by:
            # Not at once: that would cost this caller what it saved. Should the loop end before, a later one does it.
            self._woken_by = self._wrote_at + _ERRANDS_EVERY_SECONDS
            asyncio.get_running_loop().call_later(_PEACE_SECONDS, self._queue.put, Note.WAKE)
        return outcome

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

    def others_version(self) -> int:
        """A number that changes whenever another process has committed. While the thread writes, it is the one it
        found when it began."""
        if not self._turn.acquire(blocking=False):
            return self._committer.others_version
        try:
            return self._committer.others_version if self._stopping else self._committer.look_at_others()
        finally:
            self._turn.release()

    def stop(self) -> None:
        """Lets what was submitted finish, then ends the thread. Safe to call twice, from anywhere."""
        if not self._stopping:
            self._stopping = True
            self._queue.put(Note.STOP)

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
        while True:
            try:
                job = self._queue.get(timeout=rest)
            except Empty:
                rest = self._use_the_peace()
                continue
            if self._asleep:
                # What began just now may last: the errands it makes can wait for its end, for a while.
                self._asleep, self._errands_due = False, time.monotonic() + _ERRANDS_EVERY_SECONDS
            if job is Note.STOP:
                break
            if isinstance(job, Job):
                with self._turn:
                    answers = self._do(job)
                tell(answers)
            elif job is Note.LOG_MOVED:
                with self._turn:
                    self._checkpoints.finish(self._connection)
            if time.monotonic() > self._errands_due:
                self._run_errands()
            rest = _PEACE_SECONDS
        self._close()

    def _use_the_peace(self) -> float | None:
        """How long to wait for a job after this; None for ever."""
        now = time.monotonic()
        if now < self._wrote_at + _PEACE_SECONDS and now < self._errands_due:
            return _PEACE_SECONDS
        # Said before the last look at what is left, so that whoever writes after that look wakes the thread.
        self._woken_by, self._asleep = 0.0, True
        if self._run_errands():
            self._asleep = False
            return 0.0
        return None

    def _run_errands(self) -> bool:
        with self._turn:
            more = self._errands()
        self._errands_due = time.monotonic() + _ERRANDS_EVERY_SECONDS
        return more

    def _close(self) -> None:
        self._checkpoints.close()
        with self._turn, suppress(apsw.Error):
            # Closing moves the log into the file; if that fails, the log keeps everything, and the next to open it
            # does the rest.
            self._connection.close()

    def _do(self, first: Job) -> list[JobResult]:
        taken: list[Job] = []
        answers = self._committer.together(self._arriving(first, taken), taken, lambda: not self._queue.empty())
        if len(taken) > 1:
            self._crowded_until = time.monotonic() + _PEACE_SECONDS
        return answers

    def _arriving(self, first: Job, taken: list[Job]) -> Iterator[Job]:
        """The first job, whatever waits behind it, and what comes while those are done, within bounds."""
        give_up = time.monotonic() + _LONGEST_BATCH_SECONDS
        job: Job | Note = first
        while isinstance(job, Job):
            if not job.future.cancelled():
                taken.append(job)
                yield job
            if len(taken) >= _LARGEST_BATCH or self._queue.empty() or time.monotonic() > give_up:
                return
            job = self._queue.get()
        # It came in between; it is for the thread to see.
        self._queue.put(job)

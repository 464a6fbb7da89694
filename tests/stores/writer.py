"""A process whose children append until they are done or killed, and say so after each commit.

It reads one job per line, forks a child for it, kills the child when its time is up, and reports when it is gone. The
child is forked from a process that has imported everything and opened nothing, so a life costs milliseconds. Lines are
written whole, so what a child said before its death is all there and stands before the report of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

import msgspec

from threadline.clock import SystemClock
from threadline.core import messages
from threadline.core.sealing import Sealed, Sealer
from threadline.core.threads import Scope
from threadline.ports import Store
from threadline.stores.postgres.store import PostgresStore
from threadline.stores.sqlite.store import SqliteStore

_SEALER = Sealer()


class Job(msgspec.Struct, frozen=True):
    """What a child does: so many appends (or endless ones), by so many tasks, for so many seconds at most; these count
    from its birth, or from its first acknowledgement."""

    database: str
    tenant_id: str
    thread_ids: list[str]
    name: str
    count: int | None = None
    tasks: int = 1
    seconds: float | None = None
    from_first: bool = False


class Report(msgspec.Struct, frozen=True):
    """A line of the process's output: an append that was acknowledged, or (without a number) the child's end."""

    name: str
    number: int | None = None
    thread_id: str = ""
    exit_code: int | None = None


def key_of(name: str, number: int) -> str:
    return f"{name}-{number}"


def pair(key: str) -> list[Sealed]:
    """A question and its answer, recognisable to the last character."""
    question = messages.user(f"{key} asks {key * 20}", id=f"{key}-q")
    answer = messages.assistant(f"{key} answers {key * 120}", id=f"{key}-a")
    return [_SEALER.message(question), _SEALER.message(answer)]


async def open_store(database: str) -> Store:
    if database.startswith("postgresql://"):
        return await PostgresStore.open(database, clock=SystemClock())
    return await SqliteStore.open(database, clock=SystemClock())


async def _work(job: Job, talks: int) -> None:
    store = await open_store(job.database)
    tx = store.scoped(Scope(job.tenant_id, "writer"))
    numbers = iter(range(sys.maxsize if job.count is None else job.count))

    async def append() -> None:
        for number in numbers:
            key = key_of(job.name, number)
            thread_id = job.thread_ids[number % len(job.thread_ids)]
            await tx.append(thread_id, pair(key), key=key)
            _say(Report(job.name, number, thread_id))
            if number == 0:
                os.write(talks, b".")

    await asyncio.gather(*(append() for _ in range(job.tasks)))
    await store.close()


def _say(report: Report) -> None:
    os.write(1, msgspec.json.encode(report) + b"\n")


def _run(job: Job) -> None:
    heard, talks = os.pipe()
    pid = os.fork()
    if pid == 0:
        asyncio.run(_work(job, talks))
        os._exit(0)
    os.close(talks)
    if job.seconds is not None:
        if job.from_first:
            os.read(heard, 1)
        time.sleep(job.seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.close(heard)
    _, status = os.waitpid(pid, 0)
    _say(Report(job.name, exit_code=os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        _run(msgspec.json.decode(line, type=Job))

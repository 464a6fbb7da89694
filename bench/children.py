"""What a case does in a process of its own: `python -m bench.children TASK ORDER`, answers as JSON on one line.

A crowd that shares a database with other processes says when it is ready and begins when it is told, so that no
process has the database to itself. Streaming has a process of its own because memory is counted per process.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import threadline
from bench.contenders.bare_postgres import POOL, BarePostgres
from bench.contenders.bare_sqlite_crowd import BareSqliteCrowd
from bench.contenders.ours import ThreadlineLibrary
from bench.crowds import Crowd, run_crowd
from bench.places import ROOT
from threadline.cli.main import main as terminal
from threadline.core.prompts import Prompt

READY = b"ready\n"
T = TypeVar("T")


class CrowdOrder(msgspec.Struct, frozen=True):
    ours: bool
    place: str
    thread_ids: list[str]
    per_task: int


class StreamOrder(msgspec.Struct, frozen=True):
    place: str
    thread_id: str


class KilledTurnsOrder(msgspec.Struct, frozen=True):
    place: str
    thread_ids: list[str]
    question: str
    key: str


class ImportOrder(msgspec.Struct, frozen=True):
    place: str
    file: str


class ImportReport(msgspec.Struct, frozen=True):
    created: int
    unchanged: int
    seconds: float
    peak_megabytes: float


class StreamReport(msgspec.Struct, frozen=True):
    messages: int
    peak_megabytes: float
    megabytes_before: float


class Child:
    """One of these processes, as the case that started it sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, task: str, order: msgspec.Struct) -> Child:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.children", task, msgspec.json.encode(order).decode()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            # A report of some thousand latencies is one line.
            limit=2**26,
        )
        return cls(process)

    async def ready(self) -> None:
        assert self._process.stdout is not None
        if await asyncio.wait_for(self._process.stdout.readline(), 60) != READY:
            raise RuntimeError("a child process ended before it was ready; its error is above")

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def report(self, kind: type[T], *, seconds: float = 240) -> T:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        await self._process.wait()
        return msgspec.json.decode(line, type=kind)


async def crowd(order: CrowdOrder) -> Crowd:
    if order.ours:
        ours = await ThreadlineLibrary.open(order.place)
        for thread_id in order.thread_ids:
            ours.add(await ours.user.thread(thread_id))
        await _told_to_go()
        found = await run_crowd(ours.append, order.thread_ids, order.per_task)
        await ours.close()
    elif order.place.startswith("postgresql:"):
        bare = await BarePostgres.open(order.place, connections=POOL, create=False)
        await _told_to_go()
        found = await run_crowd(bare.append, order.thread_ids, order.per_task)
        await bare.close()
    else:
        threads = BareSqliteCrowd(Path(order.place), len(order.thread_ids))
        await _told_to_go()
        found = await run_crowd(threads.append, order.thread_ids, order.per_task)
        threads.close()
    return found


async def _told_to_go() -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    await asyncio.to_thread(sys.stdin.readline)


async def killed_turns(order: KilledTurnsOrder) -> None:
    """A question on each thread, to an agent that never ends its answer. Ready when all have begun, and then killed."""
    begun = asyncio.Semaphore(0)

    async def begin(prompt: Prompt) -> AsyncIterator[str]:
        yield "Let me see. "
        begun.release()
        await asyncio.Event().wait()

    async with threadline.open(order.place, agents={"agent": begin}) as opened:
        ours = ThreadlineLibrary(opened)
        replies = [(await ours.user.thread(id)).ask(order.question, key=f"{order.key}-{id}") for id in order.thread_ids]
        for reply in replies:
            await reply.accept()
        for _ in replies:
            await begun.acquire()
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        await asyncio.Event().wait()


async def stream(order: StreamOrder) -> StreamReport:
    ours = await ThreadlineLibrary.open(order.place)
    thread = await ours.user.thread(order.thread_id)
    before = _peak_megabytes()
    count = 0
    async for message in thread.stream():
        count += len(message.parts) > 0
    report = StreamReport(messages=count, peak_megabytes=_peak_megabytes(), megabytes_before=before)
    await ours.close()
    return report


def import_history(order: ImportOrder) -> ImportReport:
    """`threadline threads import`, in this process."""
    shown = io.StringIO()
    words = ("threads", "import", "--from", "chatgpt", order.file, "--database", order.place, "--json")
    started = time.perf_counter()
    with contextlib.redirect_stdout(shown):
        terminal(words)
    seconds = time.perf_counter() - started
    threads = msgspec.json.decode(shown.getvalue())["threads"]
    return ImportReport(threads.get("created", 0), threads.get("unchanged", 0), seconds, _peak_megabytes())


def _peak_megabytes() -> float:
    # Not ru_maxrss: that remembers what the process was before it became this program, a copy of the bench.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return int(peak.group(1)) * 1024 / 1e6


def main(task: str, order: str) -> None:
    found: Any
    if task == "killed-turns":
        found = asyncio.run(killed_turns(msgspec.json.decode(order, type=KilledTurnsOrder)))
    elif task == "import":
        found = import_history(msgspec.json.decode(order, type=ImportOrder))
    elif task == "crowd":
        found = asyncio.run(crowd(msgspec.json.decode(order, type=CrowdOrder)))
    else:
        found = asyncio.run(stream(msgspec.json.decode(order, type=StreamOrder)))
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

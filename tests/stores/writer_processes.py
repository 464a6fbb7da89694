"""Writer processes as a test uses them, and the check of what they left: all that was acknowledged, once, in order."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tests.stores import writer
from tests.stores.writer import Job, Report, key_of, pair
from threadline.ports import Transaction

_PATIENCE = 60


class Writer:
    """One writer process; it runs one job at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def run(self, job: Job) -> list[Report]:
        """What the job's child reported, its end last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(job) + b"\n")
        await self._process.stdin.drain()
        reports: list[Report] = []
        async with asyncio.timeout(_PATIENCE):
            while not reports or reports[-1].number is not None:
                line = await self._process.stdout.readline()
                assert line, "the writer process is gone"
                reports.append(msgspec.json.decode(line, type=Report))
        return reports


@asynccontextmanager
async def writers(count: int) -> AsyncIterator[list[Writer]]:
    """So many writer processes, ended after the test."""
    program = str(Path(writer.__file__))
    started = [
        await asyncio.create_subprocess_exec(sys.executable, program, stdin=PIPE, stdout=PIPE) for _ in range(count)
    ]
    try:
        yield [Writer(process) for process in started]
    finally:
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
            await asyncio.wait_for(process.wait(), _PATIENCE)


async def check_histories(tx: Transaction, reports: Iterable[Report]) -> None:
    """Each acknowledged append is in its thread exactly once and complete; no thread has a gap or half a pair."""
    acknowledged: dict[str, set[str]] = {}
    for report in reports:
        if report.number is not None:
            acknowledged.setdefault(report.thread_id, set()).add(key_of(report.name, report.number))
    for thread_id, keys in acknowledged.items():
        standing = await check_history(tx, thread_id)
        assert keys <= standing, f"acknowledged and not there: {sorted(keys - standing)}"


async def check_history(tx: Transaction, thread_id: str) -> set[str]:
    """The keys of the appends in the thread, each once and complete."""
    thread, found = await tx.thread(thread_id), await tx.messages(thread_id)
    for _ in range(500):
        if thread is None or thread.message_count == len(found):
            break
        # A server may still be carrying out what a dead writer had sent; the two reads then saw two states.
        await asyncio.sleep(0.01)
        thread, found = await tx.thread(thread_id), await tx.messages(thread_id)
    assert thread is not None
    assert [message.seq for message in found] == list(range(thread.message_count))
    keys = [message.id.removesuffix("-q") for message in found[::2]]
    assert Counter(keys).most_common(1)[0][1] == 1 if keys else not found
    stored = [(message.id, message.role, message.parts_json) for message in found]
    whole = [(sealed.id, sealed.role, sealed.parts_json) for key in keys for sealed in pair(key)]
    assert stored == whole
    return set(keys)

"""Many tasks that append at once: the load itself, apart from who carries it and in how many processes.

A crowd is a closed loop: each task appends a turn, waits until it is durable, and appends the next. Acknowledged
message ids are kept, so that a check afterwards can verify that every one is stored.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from bench.workload import Turn, turns

Append: TypeAlias = Callable[[str, Turn], Awaitable[object]]
TASKS = 64


class Crowd(msgspec.Struct):
    """What came of one run; times are of the monotonic clock, which all processes of a machine share."""

    started: float
    ended: float
    latencies: list[float]
    acknowledged: list[str]
    errors: list[str]

    @property
    def seconds(self) -> float:
        return self.ended - self.started


async def run_crowd(append: Append, thread_ids: Sequence[str], per_task: int) -> Crowd:
    """One task for each entry of `thread_ids`; the same id several times is a crowd on one thread."""
    feed = itertools.cycle(turns(200))
    crowd = Crowd(started=time.monotonic(), ended=0.0, latencies=[], acknowledged=[], errors=[])
    await asyncio.gather(*(_one_task(append, thread_id, per_task, feed, crowd) for thread_id in thread_ids))
    crowd.ended = time.monotonic()
    return crowd


async def _one_task(append: Append, thread_id: str, count: int, feed: Iterator[Turn], crowd: Crowd) -> None:
    for _ in range(count):
        started = time.monotonic()
        try:
            stored = await append(thread_id, next(feed))
        except Exception as exc:  # noqa: BLE001 - counting whatever goes wrong is the measurement
            crowd.errors.append(f"{type(exc).__name__}: {exc}")
            continue
        crowd.latencies.append(time.monotonic() - started)
        if isinstance(stored, tuple):
            crowd.acknowledged.extend(stored)


def count_wrong(acknowledged: Sequence[str], stored: Sequence[tuple[int, str]]) -> int:
    """Acknowledged messages that are not there exactly once, and seqs that are not the next number."""
    copies = Counter(message_id for _, message_id in stored)
    misplaced = sum(seq != place for place, (seq, _) in enumerate(stored))
    return misplaced + sum(copies[message_id] != 1 for message_id in acknowledged)

"""The measuring core: contenders take turns in rounds, and what is compared is what happened in the same round.

A shared machine gets slower and faster while a measurement runs. Interleaving (A, B, C, A, B, C, …) gives each
contender the same weather, and a ratio is the median over rounds of one contender's round against another's, so a
slow minute affects all contenders alike.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

Operation: TypeAlias = Callable[[], Awaitable[object]]


class Samples:
    """What one contender needed, in seconds, kept round by round."""

    def __init__(self, rounds: Sequence[Sequence[float]]) -> None:
        if not rounds or not all(rounds):
            raise ValueError("a measurement needs at least one sample in every round")
        self.rounds = [list(times) for times in rounds]
        self._sorted = sorted(seconds for times in rounds for seconds in times)

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def median(self) -> float:
        return statistics.median(self._sorted)

    @property
    def best(self) -> float:
        return self._sorted[0]

    @property
    def p99(self) -> float:
        """The smallest sample that at least 99 % of the samples do not exceed."""
        return self._sorted[math.ceil(0.99 * len(self._sorted)) - 1]

    def ratio_to(self, other: Samples) -> float:
        """How many times as long as the other, by the median of the rounds they shared."""
        return statistics.median(self.ratios_to(other))

    def ratios_to(self, other: Samples) -> list[float]:
        pairs = zip(self.rounds, other.rounds, strict=True)
        return [statistics.median(mine) / statistics.median(theirs) for mine, theirs in pairs]


async def interleave(
    operations: Mapping[str, Operation],
    *,
    rounds: int,
    repeats: int,
    warmup: int = 1,
    afterwards: Mapping[str, Operation] | None = None,
) -> dict[str, Samples]:
    """Every operation `repeats` times in each round, in the order given; `warmup` rounds are run and not counted.

    `afterwards` names what a contender still does in the background: it is waited for, untimed, before the next one's
    turn, so that no contender pays for another's work."""
    rest = afterwards or {}
    taken: dict[str, list[list[float]]] = {name: [] for name in operations}
    # What importing and filling left behind must not be collected at someone's expense.
    gc.collect()
    gc.freeze()
    try:
        for number in range(-warmup, rounds):
            for name, operation in operations.items():
                times = await timed(operation, repeats)
                if number >= 0:
                    taken[name].append(times)
                if name in rest:
                    await rest[name]()
    finally:
        gc.unfreeze()
    return {name: Samples(times) for name, times in taken.items()}


async def timed(operation: Operation, repeats: int) -> list[float]:
    times: list[float] = []
    clock = time.perf_counter_ns
    for _ in range(repeats):
        before = clock()
        await operation()
        times.append((clock() - before) / 1e9)
    return times

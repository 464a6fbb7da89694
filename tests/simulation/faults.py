"""Which faults a seed injects, how often, and where: at callbacks, at statements of SQLite and at calls of a platform.

Each seed draws its own mixture, so that some runs have one kind of fault only and others all of them. Faults stop at
the end of the first phase of a run, so that what follows shows whether everything recovers.
"""

from __future__ import annotations

import random
from typing import Literal, NamedTuple, TypeAlias

import apsw

HttpFate: TypeAlias = Literal["answered", "refused", "error", "limited", "lost", "silent", "slow"]
"""What happens to a request to a platform: `lost` never arrives, `silent` arrives and its response does not."""


class FaultRates(NamedTuple):
    """Probabilities per occasion."""

    crash_per_callback: float = 0.0
    crash_per_statement: float = 0.0
    pause_per_callback: float = 0.0
    """A process stands still, for longer than a lease at times, and continues as if nothing had happened."""
    clock_jump_per_callback: float = 0.0
    error_per_statement: float = 0.0
    unknown_per_commit: float = 0.0
    """A commit that reports an I/O error and is durable nevertheless."""
    slow_per_commit: float = 0.0
    http_fault: float = 0.0
    duplicate_delivery: float = 0.0
    graceful_stop_per_second: float = 0.0


_MOST = FaultRates(
    crash_per_callback=1 / 400,
    crash_per_statement=1 / 400,
    pause_per_callback=1 / 1500,
    clock_jump_per_callback=1 / 800,
    error_per_statement=1 / 80,
    unknown_per_commit=1 / 30,
    slow_per_commit=1 / 5,
    http_fault=0.7,
    duplicate_delivery=0.5,
    graceful_stop_per_second=1 / 20,
)
LONGEST_JUMP_SECONDS = 400.0
"""More than a lease, a claim and the time for which a turn that was handed over waits: a longer one finds no more."""


class Faults:
    """Decides, with the seed's generator. `is_active` ends all faults when it is set to False."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.is_active = True
        self.rates = FaultRates(*(chance.choice((0.0, rate / 4, rate)) for rate in _MOST))

    def occurs(self, rate: float) -> bool:
        return self.is_active and rate > 0 and self._chance.random() < rate

    def pause_seconds(self) -> float:
        return self._chance.choice((self._chance.uniform(0.01, 2.0), self._chance.uniform(10.0, 90.0)))

    def clock_offset(self) -> float:
        """By seconds, as time servers do, or by minutes, as operators do."""
        longest = self._chance.choice((0.0, 5.0, LONGEST_JUMP_SECONDS))
        return longest * self._chance.uniform(-1, 1)

    def statement_error(self, sql: str, *, writes: bool) -> apsw.Error | None:
        """The error that SQLite reports instead of executing this statement. `writes`: its transaction has written."""
        # Rolling back and ending savepoints does not fail on a full or broken disk.
        if sql.startswith(("ROLLBACK", "RELEASE", "SAVEPOINT")) or not self.occurs(self.rates.error_per_statement):
            return None
        if sql.startswith("BEGIN IMMEDIATE"):
            return apsw.BusyError("BusyError: database is locked (simulated)")
        if writes and self._chance.random() < 0.5:
            return apsw.FullError("FullError: database or disk is full (simulated)")
        return apsw.IOError("IOError: disk I/O error (simulated)")

    def http_fate(self) -> HttpFate:
        if not self.occurs(self.rates.http_fault):
            return "answered"
        fates: tuple[HttpFate, ...] = ("refused", "error", "limited", "lost", "silent", "slow")
        return self._chance.choice(fates)

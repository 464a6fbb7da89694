"""A clock that tests advance by hand, so that leases expire and retries become due without waiting."""

from __future__ import annotations

import datetime as dt


class ManualClock:
    def __init__(self, start: dt.datetime = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)) -> None:
        self._now = start

    def now(self) -> dt.datetime:
        return self._now

    def after(self, seconds: float) -> dt.datetime:
        """The time `seconds` from now; a negative number is in the past."""
        return self._now + dt.timedelta(seconds=seconds)

    def advance(self, seconds: float = 1) -> dt.datetime:
        self._now = self.after(seconds)
        return self._now

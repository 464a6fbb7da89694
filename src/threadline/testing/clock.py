"""A clock that stands still until a test moves it, so that leases run out and retries fall due without any waiting."""

from __future__ import annotations

import datetime as dt


class ManualClock:
    def __init__(self, start: dt.datetime = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)) -> None:
        self._now = start

    def now(self) -> dt.datetime:
        return self._now

    def after(self, seconds: float) -> dt.datetime:
        """The moment so many seconds from now; a negative number lies in the past."""
        return self._now + dt.timedelta(seconds=seconds)

    def advance(self, seconds: float = 1) -> dt.datetime:
        self._now = self.after(seconds)
        return self._now

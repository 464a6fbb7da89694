"""The real clock. Everything that asks for the time gets one given, so tests can hold it still."""

from __future__ import annotations

import datetime as dt


class SystemClock:
    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

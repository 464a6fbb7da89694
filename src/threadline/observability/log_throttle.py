"""Log lines for conditions that repeat: one line per kind and minute, with the number of repetitions.

A client that holds a thousand connections, or a database that is down, causes the same event many times a second. The
first one is logged at once, so that an operator sees it; a flood of equal lines would only fill the disk.
"""

from __future__ import annotations

import logging
import time

# Short enough to see that a condition lasts, long enough for a disk to survive days of it.
_INTERVAL_SECONDS = 60.0
# Kinds are fixed words of the program; the bound is for a mistake.
_MAX_KINDS = 1_000


class LogThrottle:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last: dict[str, float] = {}
        self._skipped: dict[str, int] = {}

    def warning(self, event: str, kind: str, **values: object) -> None:
        """Logs `event` with `kind` and `values`, unless this kind was logged less than a minute ago. `times` counts the
        events of this kind since its last line."""
        if self.is_due(kind):
            times = self._skipped.pop(kind, 0) + 1
            self._log.warning("%s", event, extra={"kind": kind, "times": times, **values})
        else:
            self._skipped[kind] = self._skipped.get(kind, 0) + 1

    def is_due(self, kind: str) -> bool:
        now = time.monotonic()
        last = self._last.get(kind)
        if last is not None and now - last < _INTERVAL_SECONDS:
            return False
        if len(self._last) >= _MAX_KINDS:
            self._last.clear()
        self._last[kind] = now
        return True

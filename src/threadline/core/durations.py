"""Parses durations such as `90s`, `15m`, `12h`, `7d` and `2w`; a number without a unit is seconds."""

from __future__ import annotations

import datetime as dt
import re

from threadline.core.errors import InvalidInput, quote

_DURATION = re.compile(r"(\d{1,9})([smhdw]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LONGEST_SECONDS = 36_500 * 86_400


def parse_duration(text: str) -> dt.timedelta:
    found = _DURATION.fullmatch(text.strip().lower())
    if not found:
        raise InvalidInput(f"duration must be a number with s, m, h, d or w, such as 90s or 7d, got {quote(text)}")
    seconds = int(found[1]) * _SECONDS[found[2]]
    # Past this a date could leave the range of the calendar: callers add the duration to the present time.
    if seconds > _LONGEST_SECONDS:
        raise InvalidInput(f"duration must be at most 36500d, got {quote(text)}")
    return dt.timedelta(seconds=seconds)

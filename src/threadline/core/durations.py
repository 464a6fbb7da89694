"""Lengths of time as people type them: `90s`, `15m`, `12h`, `7d`, `2w`; a plain number is seconds."""

from __future__ import annotations

import datetime as dt
import re

from threadline.core.errors import InvalidInput

_FORM = re.compile(r"(\d{1,9})([smhdw]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> dt.timedelta:
    found = _FORM.fullmatch(text.strip().lower())
    if not found:
        raise InvalidInput(f"{text!r} is not a length of time: write 90s, 15m, 12h, 7d or 2w")
    try:
        return dt.timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise InvalidInput(f"{text!r} is too long a time") from None

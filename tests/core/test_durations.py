from __future__ import annotations

import datetime as dt

import pytest

from threadline.core.durations import parse_duration
from threadline.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600), ("0", 0), (" 5M ", 300)],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5m", "5y", "1.5h", "999999999w", "٣d"])
def test_a_text_that_is_no_duration_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_duration(text)

"""Printed text cannot move the cursor, set the window title or write to the clipboard."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from threadline.cli.output import print_json, print_table
from threadline.cli.printable import printable, shorten
from threadline.core.threads import Point, SavedPoint
from threadline.ports import Finding


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b]52;c;ZXZpbA==\x07", "\\x1b]52;c;ZXZpbA==\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb", "a\\x0db"),
        ("\u202edrowssap", "\\u202edrowssap"),
        ("tag \U000e0041", "tag \\ue0041"),
        ("line\u2028separator", "line\\u2028separator"),
    ],
)
def test_control_sequences_are_printed_as_escapes(hostile: str, harmless: str) -> None:
    assert printable(hostile) == harmless


def test_joined_emoji_stay_joined() -> None:
    assert printable("👨‍👩‍👧 ❤️") == "👨‍👩‍👧 ❤️"


def test_newlines_are_kept_only_in_multiline_text() -> None:
    assert printable("a\n\tb", multiline=True) == "a\n\tb"
    assert printable("a\nb") == "a\\x0ab"


def test_thousands_of_combining_marks_on_a_letter_are_dropped() -> None:
    assert len(printable("z" + "\u0301" * 10_000)) < 20


def test_a_table_aligns_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("日本", "1"), ("abc", "2")], empty="nothing")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["name  n", "日本  1", "abc   2"]


def test_an_empty_table_prints_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [], empty="No threads yet. Start one: threadline chat")
    assert capsys.readouterr().out == "No threads yet. Start one: threadline chat\n"


def test_a_shortened_text_ends_with_an_ellipsis() -> None:
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"


def test_json_has_the_field_names_of_the_http_api_and_unchanged_user_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moment = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
    point = SavedPoint("here", Point("line", 3), "thread", moment)
    print_json({"saves": [point], "found": (Finding("error", "it", "so"),), "metadata": {"my_key": None}})
    assert json.loads(capsys.readouterr().out) == {
        "saves": [
            {
                "name": "here",
                "point": {"timelineId": "line", "seq": 3},
                "threadId": "thread",
                "createdAt": "2026-11-16T00:00:00Z",
            }
        ],
        "found": [{"level": "error", "what": "it", "remedy": "so"}],
        "metadata": {"my_key": None},
    }

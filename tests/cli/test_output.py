"""What the terminal prints is text: nothing in it moves the cursor, sets a title or fills a clipboard."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from threadline.cli.output import print_json, print_table
from threadline.cli.printable import cut, shown
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
def test_control_sequences_are_shown_and_not_obeyed(hostile: str, harmless: str) -> None:
    assert shown(hostile) == harmless


def test_a_family_of_joined_people_stays_one_character() -> None:
    assert shown("👨‍👩‍👧 ❤️") == "👨‍👩‍👧 ❤️"


def test_lines_stay_lines_only_where_lines_are_wanted() -> None:
    assert shown("a\n\tb", multiline=True) == "a\n\tb"
    assert shown("a\nb") == "a\\x0ab"


def test_ten_thousand_marks_on_a_letter_do_not_flood_the_screen() -> None:
    assert len(shown("z" + "\u0301" * 10_000)) < 20


def test_a_table_lines_up_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("日本", "1"), ("abc", "2")], empty="nothing")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["name  n", "日本  1", "abc   2"]


def test_an_empty_table_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [], empty="Nothing yet. Begin: threadline chat")
    assert capsys.readouterr().out == "Nothing yet. Begin: threadline chat\n"


def test_a_long_text_is_cut_with_a_sign_that_it_was() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"


def test_json_spells_names_as_the_http_api_does_and_leaves_the_users_keys_alone(
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

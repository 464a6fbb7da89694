"""Questions that wait for an answer: of one user, in one place, for a while."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.core.open_questions import (
    EXPIRES_AFTER,
    Agreed,
    Declined,
    OpenQuestion,
    ask_to_choose,
    ask_to_confirm,
    question_in,
    read_answer,
    with_question,
)

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
CLEAR = ask_to_confirm("clear", "alice", NOW)
LOAD = ask_to_choose("load", "alice", NOW, ["before lunch", "after lunch"])


def said(
    question: OpenQuestion | None, text: str, user_id: str = "alice", later: dt.timedelta = dt.timedelta()
) -> object:
    return read_answer(question, text, user_id=user_id, now=NOW + later)


@pytest.mark.req("S2-13")
@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("!yes", Agreed("clear", None)),
        (" !YES ", Agreed("clear", None)),
        ("!no", Declined("clear")),
        ("!cancel", Declined("clear")),
        ("yes", None),
        ("1", None),
        ("0", None),
        ("!yes please", None),
        ("!clear", None),
        ("hello", None),
    ],
)
def test_a_confirmation_is_answered_by_yes_or_no_and_by_nothing_else(text: str, meaning: object) -> None:
    assert said(CLEAR, text) == meaning


@pytest.mark.req("S2-09")
@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("1", Agreed("load", "before lunch")),
        (" 2\n", Agreed("load", "after lunch")),
        ("0", Declined("load")),
        ("!cancel", Declined("load")),
        ("3", None),
        ("-1", None),
        ("!yes", None),
        ("!no", None),
        ("before lunch", None),
    ],
)
def test_a_list_is_answered_by_a_number_on_it_and_left_by_0_or_cancel(text: str, meaning: object) -> None:
    assert said(LOAD, text) == meaning


def test_a_confirmation_carries_what_it_would_do() -> None:
    assert said(ask_to_confirm("open", "alice", NOW, argument="01thread"), "!yes") == Agreed("open", "01thread")


@pytest.mark.req("S2-13")
def test_a_user_cannot_answer_for_another() -> None:
    assert said(CLEAR, "!yes", user_id="bob") is None
    assert said(LOAD, "1", user_id="bob") is None


def test_a_question_expires() -> None:
    just_before = EXPIRES_AFTER - dt.timedelta(microseconds=1)
    assert said(CLEAR, "!yes", later=just_before) == Agreed("clear", None)
    assert said(CLEAR, "!yes", later=EXPIRES_AFTER) is None


def test_without_a_question_nothing_is_an_answer() -> None:
    assert said(None, "!yes") is None


def test_an_empty_list_cannot_be_offered() -> None:
    with pytest.raises(ValueError, match="at least one entry"):
        ask_to_choose("load", "alice", NOW, [])


@pytest.mark.parametrize("question", [CLEAR, LOAD, ask_to_confirm("open", "alice", NOW, argument="01thread")])
def test_a_question_survives_as_json_among_other_keys(question: OpenQuestion) -> None:
    metadata = json.loads(json.dumps(with_question({"space": "!s", "pending": "older"}, question)))
    assert metadata["space"] == "!s"
    assert question_in(metadata) == question
    assert with_question(metadata, None) == {"space": "!s"}


@pytest.mark.parametrize("kept", ["", 3, [], {}, {"does": "explode", "asked_of": "a", "expires_at": NOW.isoformat()}])
def test_what_is_no_question_is_none(kept: object) -> None:
    assert question_in({"pending": kept}) is None
    assert question_in({}) is None


@given(st.text(), st.sampled_from([CLEAR, LOAD]))
def test_no_text_makes_an_answer_fail(text: str, question: OpenQuestion) -> None:
    assert isinstance(said(question, text), Agreed | Declined | None)

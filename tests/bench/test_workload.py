"""The work is what it says it is, and the same each time."""

from __future__ import annotations

import json
import zlib

from bench.workload import answer_parts, commonest_word, question_parts, turns


def test_a_turn_has_the_sizes_the_budget_speaks_of() -> None:
    for turn in turns(50):
        assert len(turn.question) == 200
        assert len(turn.answer) == 800
        tool = json.dumps(answer_parts(turn)[0], separators=(",", ":"))
        assert 1_280 <= len(tool) <= 1_330


def test_every_run_gets_the_same_turns() -> None:
    assert turns(5) == turns(5)
    assert turns(5) != turns(5, seed=1)


def test_no_turn_repeats_another() -> None:
    drawn = turns(200)
    assert len({turn.question for turn in drawn} | {turn.answer for turn in drawn}) == 400


def test_the_text_compresses_about_as_well_as_language_does() -> None:
    stored = [json.dumps([question_parts(turn), answer_parts(turn)]).encode() for turn in turns(100)]
    ratio = sum(len(zlib.compress(text)) for text in stored) / sum(map(len, stored))
    assert 0.4 < ratio < 0.65


def test_the_commonest_word_is_in_about_two_of_three_questions() -> None:
    word = commonest_word()
    holding = sum(word in turn.question.lower().replace(".", "").split() for turn in turns(300))
    assert 0.5 < holding / 300 < 0.8

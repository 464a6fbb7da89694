"""Ids sort by time and have one spelling; names are visible text."""

from __future__ import annotations

import re
import threading
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.core.errors import InvalidName, InvalidText, LimitExceeded
from threadline.core.ids import (
    NAME_LENGTH,
    TITLE_LENGTH,
    check_id,
    check_name,
    check_state_key,
    check_tenant_id,
    check_text,
    check_title,
    check_user_id,
    new_id,
    new_state_key,
    title_from,
)

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
UNSEEN = ["\u200b", "\u200d", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\u00ad", "\u3164", "\u115f"]
PATHS = ["../../etc/passwd", "..%2f", "%252e%252e/", "..\\", "/abs", "~", "C:\\", "\\\\host\\share"]


def test_ids_grow_strictly_even_within_a_millisecond() -> None:
    made = [new_id() for _ in range(5_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[0-9a-hjkmnp-tv-z]{26}", id) for id in made)


def test_ids_begin_with_the_time() -> None:
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    before = time.time_ns() // 1_000_000
    value = sum(alphabet.index(char) << 5 * place for place, char in enumerate(reversed(new_id())))
    assert before <= value >> 80 <= time.time_ns() // 1_000_000 + 1


def test_threads_of_one_process_never_generate_the_same_id() -> None:
    made: list[list[str]] = [[] for _ in range(8)]

    def make(into: list[str]) -> None:
        into.extend(new_id() for _ in range(500))

    workers = [threading.Thread(target=make, args=(into,)) for into in made]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({id for ids in made for id in ids}) == 4_000
    assert all(ids == sorted(ids) for ids in made)


def test_a_state_key_has_21_characters_of_its_alphabet() -> None:
    made = {check_state_key(new_state_key()) for _ in range(200)}
    assert {len(key) for key in made} == {21}
    assert len(made) == 200


def test_a_state_key_never_looks_like_an_option() -> None:
    assert "-" not in {new_state_key()[0] for _ in range(2_000)}


@pytest.mark.parametrize("good", ["a", "0", "local", "a-b", "9d2f8b1e-8c1a-4d8e-9d53-0242ac130003", "a" * 63])
def test_a_tenant_id_is_a_slug(good: str) -> None:
    assert check_tenant_id(good) == good


@pytest.mark.parametrize("bad", ["", "-a", "A", "a_b", "a b", "a.b", "é", "٣", "a\n", "a\x00", "a" * 64, "a/b", "'"])
def test_any_other_tenant_id_is_refused(bad: str) -> None:
    with pytest.raises(InvalidName):
        check_tenant_id(bad)


@pytest.mark.parametrize("good", ["a", "alice@example.com", "@alice:matrix.org", "auth0|1", "Ünal Ö", "x" * 256])
def test_a_user_id_is_any_printable_string(good: str) -> None:
    assert check_user_id(good) == good


@pytest.mark.parametrize("bad", ["", " ", "a\n", "a\x00", "\u200b", "a\u202eb", "\ud800", "x" * 257])
def test_any_other_user_id_is_refused(bad: str) -> None:
    with pytest.raises(InvalidName):
        check_user_id(bad)


@pytest.mark.parametrize("good", ["a", "0", "m_1", "a.b:c-d_e", "A" * 128, "__LOCALID_x"])
def test_an_id_is_ascii(good: str) -> None:
    assert check_id("thread", good) == good


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "é",
        unicodedata.normalize("NFD", "é"),
        "٣",
        "ａ",
        "a b",
        "a\n",
        "\n",
        "a\x00",
        "a/b",
        "x') OR 1=1 --",
        "a" * 129,
    ]
    + [path for path in PATHS if path != "~"]
    + UNSEEN,
)
def test_ids_with_several_spellings_are_refused(bad: str) -> None:
    with pytest.raises(InvalidName, match="thread id"):
        check_id("thread", bad)


def test_ids_that_look_alike_stay_apart() -> None:
    assert check_id("thread", "chat:support.agent") != check_id("thread", "chat_support_agent")
    with pytest.raises(InvalidName):
        check_id("thread", "chat:support/agent")


@pytest.mark.req("S1-04")
@pytest.mark.parametrize("bad", ["", "a.b", "a:b", "é", "a b", "a\n", "a" * 129, "a/b", "%41"])
def test_a_state_key_outside_its_alphabet_is_refused(bad: str) -> None:
    with pytest.raises(InvalidName):
        check_state_key(bad)
    assert check_state_key("aZ0_-" + "x" * 123)


@pytest.mark.parametrize("good", ["before the storm", "Größe", "日本語", "🙂", "a/b: c?", *PATHS])
def test_a_name_is_visible_text_and_never_a_path(good: str) -> None:
    assert check_name("saved point", good) == good


@pytest.mark.parametrize("unseen", UNSEEN)
def test_a_name_with_invisible_characters_is_refused(unseen: str) -> None:
    with pytest.raises(InvalidName):
        check_name("saved point", f"a{unseen}b")


@pytest.mark.parametrize("bad", ["", " ", "\t\n", "a\nb", "a\x1b[2J", "a\x9b", "a\x00", "\ud800", "\ue000"])
def test_an_empty_name_or_one_of_controls_is_refused(bad: str) -> None:
    with pytest.raises(InvalidName):
        check_name("saved point", bad)


def test_a_name_has_one_spelling() -> None:
    assert check_name("saved point", unicodedata.normalize("NFD", " é ")) == "é"


def test_the_length_of_a_name_counts_characters() -> None:
    assert check_title("é" * NAME_LENGTH) == "é" * NAME_LENGTH
    with pytest.raises(LimitExceeded, match="title length must be at most 100, got 101"):
        check_title("é" * (NAME_LENGTH + 1))


@pytest.mark.parametrize(
    "good", ["a", " a ", FAMILY, "Z" + "\u0351" * 10_000, "a\u202eb", "\u200ba", "=1+1", "\x1b[2J!"]
)
def test_valid_text_is_unchanged(good: str) -> None:
    assert check_text("message", good) is good


@pytest.mark.parametrize("bad", ["", " \t\n", "\u200b\u200d\ufeff", "\u3164", "\U000e0041", "\x07"])
def test_text_without_visible_characters_is_refused(bad: str) -> None:
    with pytest.raises(InvalidText, match="message must not be empty"):
        check_text("message", bad)


@pytest.mark.parametrize("bad", ["x\x00y", "\udc00", "\ude00\ud83d", "a\ud800b"])
def test_text_with_lone_surrogates_or_nul_is_refused(bad: str) -> None:
    with pytest.raises(InvalidText):
        check_text("message", bad)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello there", "Hello there"),
        ("  two\n\nlines\tand more  ", "two lines and more"),
        ("a\u202eb\u200bc\U000e0041d", "abcd"),
        ("bell\x07 escape\x1b[2J", "bell escape [2J"),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 99 + "…"),
        ("x" * 98 + "e\u0301" * 5, "x" * 98 + "…"),
        ("x" * 96 + FAMILY, "x" * 96 + "…"),
        ("x" * 98 + "👍🏽!!", "x" * 98 + "…"),
        ("x" * 98 + "🇳🇴!!", "x" * 98 + "…"),
        ("x" * 97 + "🇳🇴!!", "x" * 97 + "🇳🇴…"),
        (FAMILY, FAMILY),
        ("", ""),
    ],
)
def test_a_title_is_one_line_of_whole_graphemes(text: str, title: str) -> None:
    assert title_from(text) == title


@given(st.text(st.characters(), max_size=300))
def test_any_text_gives_a_short_title_that_can_be_stored(text: str) -> None:
    title = title_from(text)
    assert len(title) <= TITLE_LENGTH
    assert title == title.strip()
    assert "\n" not in title
    assert "\x00" not in title
    title.encode()
    assert title_from(title) == title


@given(st.text(st.sampled_from("ab \u0301\u200d\ufe0f👩👧🏽🇳🇴"), min_size=90, max_size=200))
def test_a_cut_title_is_the_beginning_of_the_line(text: str) -> None:
    title = title_from(text)
    line = " ".join(text.split())
    assert line.startswith(title.removesuffix("…"))

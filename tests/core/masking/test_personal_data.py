"""Masking of personal data: what is chosen is masked, look-alikes and everything else is untouched."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.masking.secret_samples import BODY, LOOK_ALIKES
from threadline.core.masking import PersonalDataKind, PersonalDataMasker, make_masker

PERSONAL_DATA_KINDS: tuple[PersonalDataKind, ...] = get_args(PersonalDataKind)
MASKER = PersonalDataMasker(PERSONAL_DATA_KINDS)

# kind, label, samples
FOUND: list[tuple[PersonalDataKind, str, list[str]]] = [
    ("email", "email", ["bob@example.com", "bob.smith+news@mail.example.co.uk", "B_2@xn--bcher-kva.example"]),
    ("phone", "phone", ["+49 30 1234567", "+14155552671", "0049 30 123456", "(415) 555-2671", "415-555-2671"]),
    ("card", "card", ["4111 1111 1111 1111", "4111111111111111", "5555-5555-5555-4444", "3782 822463 10005"]),
    ("iban", "iban", ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819", "NO93 8601 1117 947"]),
    ("us-ssn", "national-id", ["123-45-6789"]),
    ("br-cpf", "national-id", ["529.982.247-25"]),
    ("ch-ahv", "national-id", ["756.9217.0769.85"]),
    ("es-dni", "national-id", ["12345678Z", "12345678-Z", "X1234567L"]),
    ("fr-nir", "national-id", ["1 84 12 76 451 089 46", "184127645108946"]),
    ("it-cf", "national-id", ["RSSMRA85T10A562S"]),
    ("uk-nino", "national-id", ["AB 12 34 56 C", "AB123456C"]),
]
SAMPLES = [(kind, label, sample) for kind, label, samples in FOUND for sample in samples]
# A wrong check digit, or another thing of the same form.
WRONG = [
    "4111 1111 1111 1112, 4111-1111-1111-1111-1111, 1234 5678 9012 3456, 6011",
    "DE89 3704 0044 0532 0130 01, XX89 3704 0044 0532 0130 00, GB29",
    "000-12-3456, 666-12-3456, 123-00-4567, 123-45-67890",
    "529.982.247-24, 756.9217.0769.84, 12345678A, X1234567A, 184127645108947, GB123456C, AB123456E",
    "icon@2x.png, git@github.com:owner/repo.git, https://user@example.com/, @handle, a@b, pkg@1.2.3, me@localhost",
    "+1, 1+12345678, 0012345678, 123-456-7890, 115-555-2671, 2026-11-16 17:20, 10.15.7.1, v2.3.4567",
    "call_4111111111111111x, id4111111111111111, 550e8400-e29b-41d4-a716-446655440000, 1790000000000000001",
]


@pytest.mark.req("R-07")
@pytest.mark.parametrize(("kind", "label", "sample"), SAMPLES)
def test_what_is_chosen_is_masked_and_nothing_else(kind: PersonalDataKind, label: str, sample: str) -> None:
    masker = PersonalDataMasker([kind])
    for before, after in (("", ""), ("It is ", "."), ("(", ")"), ("名前は", "です"), ("x: ", "\nAND MORE")):
        assert masker.mask_text(before + sample + after) == f"{before}[masked:{label}]{after}"
    others = PersonalDataMasker(set(PERSONAL_DATA_KINDS) - {kind})
    assert others.mask_text(sample) is sample
    assert make_masker(()).mask_text(sample) is sample


@pytest.mark.req("R-07")
@pytest.mark.parametrize("text", [*WRONG, *LOOK_ALIKES])
def test_look_alikes_are_untouched(text: str) -> None:
    # The one look-alike of secrets that contains an address.
    text = text.replace("mailto:bob@example.com", "")
    assert MASKER.mask_text(text) is text


@pytest.mark.req("R-07")
def test_innocent_strings_are_untouched() -> None:
    lines = (Path(__file__).parent / "innocent_strings.txt").read_text().splitlines()
    assert [line for line in lines if MASKER.mask_text(line) is not line] == []


@pytest.mark.req("R-07")
def test_random_numbers_are_rarely_taken_for_personal_data() -> None:
    source = random.Random(20261116)
    numbers = [str(source.randrange(10 ** (n - 1), 10**n)) for n in range(6, 22) for _ in range(500)]
    alarms = [
        number for number in numbers if MASKER.mask_text(f"order {number} is ready") != f"order {number} is ready"
    ]
    assert len(alarms) < len(numbers) * 0.01


@pytest.mark.req("R-07")
@pytest.mark.parametrize(("kind", "label", "sample"), SAMPLES)
def test_no_split_of_a_stream_lets_it_through(kind: PersonalDataKind, label: str, sample: str) -> None:
    whole = f"It is {sample}, and ghp_{BODY[:36]} too"
    masked = MASKER.mask_text(whole)
    assert sample not in masked
    for cut in range(len(whole) + 1):
        stream = MASKER.stream()
        assert stream.feed(whole[:cut]) + stream.feed(whole[cut:]) + stream.flush() == masked
    stream = MASKER.stream()
    assert "".join(map(stream.feed, whole)) + stream.flush() == masked


@pytest.mark.req("R-07")
@given(
    st.lists(
        st.sampled_from([sample for _, _, sample in SAMPLES])
        | st.sampled_from([" ", ", ", "\n", ".", "A", "1", "-", "日", "BIC ", "x" * 30])
        | st.text(max_size=3),
        max_size=8,
    ),
    st.integers(1, 9),
)
def test_a_stream_and_a_whole_text_are_masked_alike(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    stream = MASKER.stream()
    shown = "".join([stream.feed(text[at : at + size]) for at in range(0, len(text), size)]) + stream.flush()
    assert shown == MASKER.mask_text(text)
    assert MASKER.mask_text(shown) is shown


@pytest.mark.req("R-07")
@pytest.mark.parametrize("sample", ["4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"])
def test_a_number_in_a_long_table_of_numbers_is_masked_at_any_place(sample: str) -> None:
    for before in range(0, 60, 7):
        text = "12345 " * (80 + before) + "END " + sample + " X" + " 54321" * 150
        stream = MASKER.stream()
        shown = "".join(map(stream.feed, text)) + stream.flush()
        assert sample not in shown
        assert shown == MASKER.mask_text(text)


def test_prose_is_streamed_by_words() -> None:
    stream = MASKER.stream()
    shown = "".join(map(stream.feed, "A sentence in plain words, one after the other; 日本語も"))
    assert len(shown) > 40


@pytest.mark.req("R-07")
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_structured_values_are_masked(ensure_ascii: bool) -> None:
    value = {"to": ["bob@example.com"], "alice@example.org": {"iban": "DE89 3704 0044 0532 0130 00"}, "n": 5}
    raw = json.dumps(value, ensure_ascii=ensure_ascii).encode()
    assert MASKER.may_hold(raw)
    assert MASKER.mask_json(value) == {"to": ["[masked:email]"], "[masked:email]": {"iban": "[masked:iban]"}, "n": 5}
    harmless = {"text": "plain words", "n": 12}
    assert MASKER.mask_json(harmless) is harmless
    assert not MASKER.may_hold(json.dumps(harmless).encode())

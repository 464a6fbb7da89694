"""Properties of masking for any text: prefilters agree, masking is idempotent, streams equal whole texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.masking.texts import cut_texts, texts
from threadline.core.masking import SecretMasker

WITH_RE2, WITHOUT = SecretMasker(with_re2=True), SecretMasker(with_re2=False)


@pytest.mark.req("S1-21")
@given(texts)
def test_both_prefilters_mask_the_same(text: str) -> None:
    assert WITH_RE2.mask_text(text) == WITHOUT.mask_text(text)


@pytest.mark.req("S1-21")
@given(texts)
def test_masking_is_idempotent(text: str) -> None:
    once = WITH_RE2.mask_text(text)
    assert WITH_RE2.mask_text(once) is once


@pytest.mark.req("S1-21")
@given(cut_texts())
def test_a_streamed_text_is_masked_like_a_whole_one(pieces: list[str]) -> None:
    stream = WITH_RE2.stream()
    shown = "".join([*map(stream.feed, pieces), stream.flush()])
    assert shown == WITH_RE2.mask_text("".join(pieces))


@given(st.text())
def test_any_text_can_be_masked(text: str) -> None:
    WITH_RE2.mask_text(text)


names = st.sampled_from(["a", "password", "api_key", "token", "tokens", "value", "name", "type"]) | texts
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.req("S1-21")
@given(values)
def test_structured_values_stay_json_and_the_input_is_unchanged(value: Any) -> None:
    before = json.dumps(value)
    masked = WITH_RE2.mask_json(value)
    assert json.dumps(value) == before
    assert json.loads(json.dumps(masked)) == masked
    assert WITH_RE2.mask_json(masked) is masked
    assert masked is value or masked != value
    assert WITHOUT.mask_json(value) == masked


@pytest.mark.req("S1-21")
@given(values, st.booleans())
def test_json_that_the_prefilter_rejects_needs_no_masking(value: Any, ensure_ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")
    for masker in (WITH_RE2, WITHOUT):
        assert masker.may_hold(raw) or masker.mask_json(value) is value


@given(values)
def test_masked_json_has_nothing_left_to_mask_but_names(value: Any) -> None:
    masked = WITH_RE2.mask_json(value)
    raw = json.dumps(masked).encode()
    assert WITH_RE2.may_hold(raw) == WITHOUT.may_hold(raw)

"""Message parts in the AI SDK's form: the golden file has one of each, and no part is lost or changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_jsontext import JSON, SMALL_JSON
from threadline.core import jsontext, parts
from threadline.core.errors import InvalidInput, InvalidJson
from threadline.core.parts import (
    Approval,
    DataPart,
    FilePart,
    OtherPart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
)

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "golden" / "parts.json").read_text(encoding="utf-8")
)


def spelled(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def other(number: int) -> OtherPart:
    part = GOLDEN["kinds this version does not know"][number]
    return OtherPart(part["type"], spelled(part))


VALUES: dict[str, tuple[Part, ...]] = {
    "text": (TextPart("Hello, wörld 🙂"),),
    "reasoning, signed": (ReasoningPart("hm", {"anthropic": {"signature": "c2ln"}}),),
    "reasoning": (ReasoningPart(""),),
    "file": (FilePart("image/png", "https://example.org/a.png", "a.png"),),
    "file without a name": (FilePart("text/plain", "data:text/plain,hi"),),
    "sources": (
        SourceUrlPart("s1", "https://example.org", "Example"),
        SourceUrlPart("s2", "https://example.org/2"),
        SourceDocumentPart("s3", "application/pdf", "Paper", "p.pdf"),
        SourceDocumentPart("", "", ""),
    ),
    "steps and data": (
        StepStartPart(),
        DataPart("weather", {"city": "Oslo", "degrees": -3.5, "n": 2**64 + 1}),
        DataPart("weather", None, "w1"),
    ),
    "open tool call": (ToolPart("c1", "clock", "input-available", b'{"zone":"UTC"}'),),
    "answered tool call": (ToolPart("c1", "clock", "output-available", b"{}", b'{"time":"12:00"}'),),
    "tool call that answered nothing": (ToolPart("c1", "clock", "output-available", b"null", b"null"),),
    "failed tool call": (ToolPart("c1", "clock", "output-error", b'"{broken"', error="stopped"),),
    "streaming tool call": (ToolPart("c1", "clock", "input-streaming"),),
    "dynamic tool call": (
        ToolPart("c1", "mcp/clock", "output-denied", b"[1]", approval=Approval("a1", False, "no"), dynamic=True),
    ),
    "approval asked": (ToolPart("c1", "mail", "approval-requested", b"{}", approval=Approval("a1")),),
    "kinds this version does not know": (other(0), TextPart("after it"), other(2), other(3), other(4)),
}

words = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=20)
maybe = st.none() | words
raw_json = JSON.map(jsontext.dump)
any_part: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, words),
    st.builds(ReasoningPart, words, st.none() | st.dictionaries(words, JSON, max_size=2)),
    st.builds(FilePart, words, words, maybe),
    st.builds(SourceUrlPart, words, words, maybe),
    st.builds(SourceDocumentPart, words, words, words, maybe),
    st.builds(StepStartPart),
    st.builds(DataPart, words, JSON, maybe),
    st.builds(
        ToolPart,
        words,
        words.filter(bool),
        st.sampled_from(get_args(parts.ToolState)),
        st.none() | raw_json,
        st.none() | raw_json,
        maybe,
        st.none() | st.builds(Approval, words, st.none() | st.booleans(), maybe),
        st.booleans(),
    ),
)


def test_the_golden_file_and_the_values_here_are_the_same_set() -> None:
    assert GOLDEN.keys() == VALUES.keys()


@pytest.mark.parametrize("name", VALUES)
def test_parts_are_written_as_the_golden_file_has_them(name: str) -> None:
    assert parts.encode(VALUES[name]) == spelled(GOLDEN[name])


@pytest.mark.req("S1-11")
@pytest.mark.parametrize("name", VALUES)
def test_parts_are_read_as_they_were_written(name: str) -> None:
    assert parts.decode(spelled(GOLDEN[name])) == VALUES[name]


@given(st.lists(any_part, max_size=6))
def test_any_parts_round_trip_in_order(given_parts: list[Part]) -> None:
    assert parts.decode(parts.encode(given_parts)) == tuple(given_parts)


@given(st.lists(st.dictionaries(words, SMALL_JSON, max_size=4).map(lambda part: {**part, "type": "new"}), max_size=4))
def test_any_part_of_an_unknown_kind_keeps_its_bytes(found: list[dict[str, Any]]) -> None:
    raw = [jsontext.dump(part) for part in found]
    assert parts.decode(b"[" + b" , ".join(raw) + b"]") == tuple(OtherPart("new", piece) for piece in raw)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["type", "text", "state", "url", "data", "input"]), SMALL_JSON), max_size=3
    )
)
def test_any_list_of_objects_gives_parts_or_a_typed_error(found: list[dict[str, Any]]) -> None:
    raw = jsontext.dump(found)
    try:
        decoded = parts.decode(raw)
    except InvalidJson:
        return
    assert len(decoded) == len(found)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"null", b"[1]", b"[{}]", b'[{"type":1}]', b"[", b'["\xff"]', b'[{"type":"a"}']
)
def test_json_that_is_not_a_list_of_parts_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidJson):
        parts.decode(raw)


def test_a_known_kind_with_a_key_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidJson):
        parts.decode(b'[{"type":"text","text":7}]')


def test_plain_text_contains_only_text_parts() -> None:
    said = (TextPart("one"), parts.tool_part("t", "c", {"not": "this"}), ReasoningPart("nor this"), TextPart("two"))
    assert parts.plain_text(said) == "one\n\ntwo"
    assert parts.plain_text(()) == ""


def test_a_tool_part_from_plain_data_has_its_state() -> None:
    open_call = parts.tool_part("clock", "c1", {"n": 2**70})
    assert (open_call.state, open_call.is_answered, open_call.output_value()) == ("input-available", False, None)
    assert open_call.input_value() == {"n": 2**70}
    answered = parts.tool_part("clock", "c1", {}, output=None)
    assert (answered.state, answered.is_answered, answered.output) == ("output-available", True, b"null")
    failed = parts.tool_part("clock", "c1", {}, error="no")
    assert (failed.state, failed.is_answered, failed.error) == ("output-error", True, "no")
    with pytest.raises(InvalidInput):
        parts.tool_part("clock", "c1", {}, output=1, error="no")

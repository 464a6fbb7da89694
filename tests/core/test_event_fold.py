"""Events become a message in the order in which they were shown, and what is streamed is what is stored."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from tests.core import strategies
from threadline.core import events, parts
from threadline.core.agent_anomalies import Anomaly
from threadline.core.event_fold import Fold
from threadline.core.events import (
    ApprovalRequest,
    Event,
    Failure,
    FinalText,
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    Restart,
    Source,
    Status,
    StepStart,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)
from threadline.core.parts import (
    Approval,
    Part,
    ReasoningPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
    tool_part,
)

GOLDEN = Path(__file__).parent / "golden"


def fold(*given: Event) -> Fold:
    folded = Fold()
    for event in given:
        folded.add(event)
    return folded


def folded(*given: Event) -> tuple[Part, ...]:
    return fold(*given).parts()


def published(*given: Event) -> list[Event]:
    into = Fold()
    return [shown for event in given for shown in into.add(event)]


@pytest.mark.req("S1-12")
def test_text_tool_text_stays_in_that_order() -> None:
    assert folded(
        TextDelta("Let me "),
        TextDelta("look."),
        ToolCall("c", "weather", {"city": "Rome"}),
        ToolResult("c", "sunny"),
        TextDelta("It is "),
        TextDelta("sunny."),
    ) == (
        TextPart("Let me look."),
        tool_part("weather", "c", {"city": "Rome"}, output="sunny"),
        TextPart("It is sunny."),
    )


@pytest.mark.req("S1-11", "S1-12")
def test_a_recorded_turn_with_parallel_tools_and_reasoning_folds_as_it_was_shown() -> None:
    lines = (GOLDEN / "turn.events.jsonl").read_bytes().splitlines()
    reply = fold(*(events.from_json(line) for line in lines))
    assert parts.encode(reply.parts()) == (GOLDEN / "turn.parts.json").read_bytes().strip()
    assert reply.usage == Usage(input_tokens=420, output_tokens=96, cached_tokens=128, reasoning_tokens=21)
    assert reply.finish == "stop"
    assert not reply.anomalies


@pytest.mark.req("S1-11")
def test_a_call_is_input_available_until_its_result_comes_and_one_part_with_it_then() -> None:
    reply = fold(ToolCall("c", "weather", {"city": "Rome"}))
    assert reply.parts() == (tool_part("weather", "c", {"city": "Rome"}),)
    assert parts.decode(parts.encode(reply.parts())) == reply.parts()
    reply.add(ToolResult("c", {"degrees": 21}))
    assert reply.parts() == (ToolPart("c", "weather", "output-available", b'{"city":"Rome"}', b'{"degrees":21}'),)
    assert parts.decode(parts.encode(reply.parts())) == reply.parts()


def test_streamed_input_is_one_part_with_its_state() -> None:
    reply = fold(ToolInputStart("c", "weather"))
    assert reply.parts() == (ToolPart("c", "weather", "input-streaming"),)
    reply.add(ToolInputDelta("c", '{"city": "Ro'))
    assert reply.parts() == (ToolPart("c", "weather", "input-streaming", b'"{\\"city\\": \\"Ro"'),)
    reply.add(ToolInputDelta("c", 'me"}'))
    assert reply.parts() == (ToolPart("c", "weather", "input-streaming", b'{"city": "Rome"}'),)
    reply.add(ToolCall("c", "weather", {"city": "Rome"}))
    assert reply.parts() == (tool_part("weather", "c", {"city": "Rome"}),)


def test_malformed_input_is_kept_as_the_string_it_was() -> None:
    (part,) = folded(ToolCall("c", "weather", '{"city": '))
    assert isinstance(part, ToolPart)
    assert part.input_value() == '{"city": '


def test_parallel_calls_keep_their_order_whatever_the_order_of_results() -> None:
    assert folded(ToolCall("a", "one", {}), ToolCall("b", "two", {}), ToolResult("b", 2), ToolError("a", "broke")) == (
        tool_part("one", "a", {}, error="broke"),
        tool_part("two", "b", {}, output=2),
    )


def test_a_result_in_the_middle_of_a_text_does_not_break_the_text() -> None:
    assert folded(ToolCall("a", "one", {}), TextDelta("Hel"), ToolResult("a", 1), TextDelta("lo")) == (
        tool_part("one", "a", {}, output=1),
        TextPart("Hello"),
    )


def test_another_kind_a_step_or_the_end_closes_the_open_part() -> None:
    assert folded(
        TextDelta("a"), ReasoningDelta("b"), TextDelta("c"), StepStart(), TextDelta("d"), Finish(), TextDelta("e")
    ) == (TextPart("a"), ReasoningPart("b"), TextPart("c"), StepStartPart(), TextPart("d"), TextPart("e"))


def test_sources_and_statuses_do_not_break_a_text() -> None:
    assert folded(TextDelta("a"), Status("reading"), Source("s", "https://example.org", "E"), TextDelta("b")) == (
        TextPart("ab"),
        SourceUrlPart("s", "https://example.org", "E"),
    )


def test_reasoning_keeps_its_signature_and_an_encrypted_one_has_no_words() -> None:
    signature = {"anthropic": {"signature": "EqQBCg=="}}
    encrypted = {"anthropic": {"redactedData": "ZW5j"}}
    reply = fold(ReasoningDelta("Hm"), ReasoningDelta("m."), ReasoningEnd(signature), ReasoningEnd(encrypted))
    assert reply.parts() == (ReasoningPart("Hmm.", signature), ReasoningPart("", encrypted))
    assert published(ReasoningEnd(None)) == []


@pytest.mark.req("S1-18")
def test_usage_adds_up_and_is_neither_streamed_nor_stored_in_the_message() -> None:
    given = (Usage(1, 2, 3, 4), TextDelta("a"), Usage(10, 20, 30, 40))
    reply = fold(*given)
    assert reply.usage == Usage(11, 22, 33, 44)
    assert reply.parts() == (TextPart("a"),)
    assert published(*given) == [TextDelta("a")]


@pytest.mark.req("S1-18")
def test_a_status_is_published_and_never_stored() -> None:
    assert published(Status("searching")) == [Status("searching")]
    assert folded(Status("searching")) == ()


@pytest.mark.req("S1-20")
@pytest.mark.parametrize("streamed", [(), ("Hello",), ("Hel", "lo")])
def test_a_final_text_that_extends_the_deltas_publishes_the_remainder(streamed: tuple[str, ...]) -> None:
    deltas = [TextDelta(text) for text in streamed]
    reply = fold(*deltas)
    remainder = "Hello world"[len("".join(streamed)) :]
    assert reply.add(FinalText("Hello world")) == (TextDelta(remainder),)
    assert reply.add(FinalText("Hello world")) == ()
    assert reply.parts() == (TextPart("Hello world"),)
    assert not reply.anomalies


@pytest.mark.req("S1-20")
def test_a_diverging_final_text_is_stored_and_reported() -> None:
    reply = fold(TextDelta("Helo"))
    assert reply.add(FinalText("Hello")) == (FinalText("Hello"),)
    assert reply.parts() == (TextPart("Hello"),)
    assert reply.anomalies == {Anomaly("diverging-text"): 1}


@pytest.mark.req("S1-20")
def test_a_final_text_replaces_only_text_after_the_last_call() -> None:
    reply = fold(TextDelta("Let me look."), ToolCall("c", "t", {}), ToolResult("c", 1), TextDelta("It is"))
    reply.add(FinalText("It is sunny."))
    assert reply.parts() == (TextPart("Let me look."), tool_part("t", "c", {}, output=1), TextPart("It is sunny."))
    reply.add(FinalText("It rains."))
    assert reply.parts() == (TextPart("Let me look."), tool_part("t", "c", {}, output=1), TextPart("It rains."))


def test_a_diverging_final_text_follows_what_led_to_it() -> None:
    reply = fold(TextDelta("One"), ReasoningDelta("hm"), TextDelta("two"), FinalText("Three"))
    assert reply.parts() == (ReasoningPart("hm"), TextPart("Three"))


def test_an_empty_delta_is_nothing() -> None:
    assert published(TextDelta(""), ReasoningDelta("")) == []
    assert folded(TextDelta("a"), ReasoningDelta(""), TextDelta("b")) == (TextPart("ab"),)


def test_an_empty_final_text_takes_nothing_back() -> None:
    reply = fold(TextDelta("Hello"))
    assert reply.add(FinalText("")) == ()
    assert reply.parts() == (TextPart("Hello"),)


@pytest.mark.parametrize(
    "event",
    [ToolResult("x", 1), ToolError("x", "e"), ToolDenied("x"), ApprovalRequest("x", "p"), ToolInputDelta("x", "{")],
)
def test_a_result_that_belongs_to_no_call_is_ignored_and_reported(event: Event) -> None:
    reply = fold(TextDelta("a"))
    assert reply.add(event) == ()
    assert reply.parts() == (TextPart("a"),)
    assert reply.anomalies == {Anomaly("unknown-call", "x"): 1}


def test_the_first_result_of_a_call_stays() -> None:
    reply = fold(ToolCall("c", "t", {}), ToolResult("c", "first"))
    assert reply.add(ToolResult("c", "second")) == ()
    assert reply.parts() == (tool_part("t", "c", {}, output="first"),)
    assert reply.anomalies == {Anomaly("repeated-result", "c"): 1}


def test_a_repeated_call_is_one_call() -> None:
    reply = fold(ToolInputStart("c", "t"), ToolInputStart("c", "t"), ToolCall("c", "t", {"k": 1}))
    assert reply.add(ToolCall("c", "t", {"k": 1})) == ()
    assert reply.add(ToolInputDelta("c", "{}")) == ()
    assert reply.parts() == (tool_part("t", "c", {"k": 1}),)
    assert reply.anomalies == {Anomaly("repeated-call", "c"): 2, Anomaly("late-input", "c"): 1}


def test_calls_with_the_same_id_get_distinct_ids_in_store_and_stream() -> None:
    given = (
        ToolCall("call_0", "clock", {}),
        ToolResult("call_0", "9:00"),
        ToolCall("call_0", "clock", {}),
        ToolResult("call_0", "9:01"),
    )
    assert folded(*given) == (
        tool_part("clock", "call_0", {}, output="9:00"),
        tool_part("clock", "call_0-2", {}, output="9:01"),
    )
    assert [event.call_id for event in published(*given) if isinstance(event, ToolResult)] == ["call_0", "call_0-2"]
    assert fold(*given).anomalies == {Anomaly("repeated-id", "call_0"): 1}


def test_the_complete_call_decides_the_name() -> None:
    given = (ToolInputStart("c", ""), ToolCall("c", "weather", {}))
    assert folded(*given) == (tool_part("weather", "c", {}),)
    assert folded(ToolInputStart("c", "weather"), ToolCall("c", "", {})) == (tool_part("weather", "c", {}),)
    assert folded(ToolCall("c", "", {})) == (tool_part("unnamed", "c", {}),)


def test_a_preliminary_result_is_shown_and_not_stored() -> None:
    reply = fold(ToolCall("c", "t", {}))
    assert reply.add(ToolResult("c", "10 %", preliminary=True)) == (ToolResult("c", "10 %", preliminary=True),)
    assert reply.parts() == (tool_part("t", "c", {}),)


def test_an_approval_is_asked_given_or_denied_on_the_call_it_is_for() -> None:
    asked = fold(ToolCall("c", "t", {}), ApprovalRequest("c", "p"))
    assert asked.parts() == (ToolPart("c", "t", "approval-requested", b"{}", approval=Approval("p")),)
    asked.add(ToolDenied("c", "not today"))
    assert asked.parts() == (ToolPart("c", "t", "output-denied", b"{}", approval=Approval("p", False, "not today")),)
    granted = fold(ToolCall("c", "t", {}), ApprovalRequest("c", "p"), ToolResult("c", 1))
    assert granted.parts() == (ToolPart("c", "t", "output-available", b"{}", b"1", approval=Approval("p", True)),)
    unasked = fold(ToolCall("c", "t", {}), ToolDenied("c", "never"))
    assert unasked.parts() == (ToolPart("c", "t", "output-denied", b"{}", approval=Approval("c", False, "never")),)


@pytest.mark.req("S1-15")
def test_an_interrupted_reply_is_what_was_shown_until_then() -> None:
    reply = fold(TextDelta("I will "), ToolInputStart("c", "t"), ToolInputDelta("c", '{"a'), Failure("it broke"))
    assert reply.parts() == (TextPart("I will "), ToolPart("c", "t", "input-streaming", b'"{\\"a"'))
    assert reply.failure == "it broke"


def test_a_restart_drops_what_came_before() -> None:
    given = (TextDelta("Pay"), ToolCall("1", "pay", {}), Restart(), TextDelta("Paid."))
    assert folded(*given) == (TextPart("Paid."),)
    assert published(*given) == list(given)


def test_lone_surrogates_are_replaced_for_readers_and_store_alike() -> None:
    reply = fold()
    assert reply.add(TextDelta("a\ud83d")) == (TextDelta("a\ufffd"),)
    assert reply.add(ToolCall("c", "t", {"k": "\x00"})) == (ToolCall("c", "t", {"k": "\ufffd"}),)
    assert reply.parts() == (TextPart("a\ufffd"), tool_part("t", "c", {"k": "\ufffd"}))
    assert reply.anomalies == {Anomaly("sanitized-text"): 2}


@pytest.mark.req("S1-11", "S1-12")
@given(strategies.transcripts)
def test_folding_what_was_published_gives_the_same_reply(given: list[Event]) -> None:
    first = fold(*given)
    shown = published(*given)
    again = fold(*shown)
    assert again.parts() == first.parts()
    assert published(*shown) == shown
    assert set(again.anomalies) <= {Anomaly("diverging-text")}
    assert not any(isinstance(event, Usage) for event in shown)
    for event in shown:
        assert events.from_json(events.to_json(event)) == event


@given(strategies.transcripts)
def test_every_reply_can_be_stored_and_has_each_call_once(given: list[Event]) -> None:
    reply = folded(*given)
    assert parts.decode(parts.encode(reply)) == reply
    ids = [part.call_id for part in reply if isinstance(part, ToolPart)]
    assert len(ids) == len(set(ids))


@given(strategies.transcripts)
def test_parts_only_grow_and_keep_their_order_unless_a_final_text_diverged(given: list[Event]) -> None:
    reply = Fold()
    kinds: list[type] = []
    for event in given:
        if isinstance(event, FinalText):
            continue
        reply.add(event)
        now = [type(part) for part in reply.parts()]
        assert now[: len(kinds)] == kinds
        kinds = now


@given(strategies.transcripts)
def test_neighbouring_texts_are_one_part(given: list[Event]) -> None:
    reply = folded(*(event for event in given if not isinstance(event, Finish | Failure | FinalText)))
    for one, other in pairwise(reply):
        assert not (isinstance(one, TextPart) and isinstance(other, TextPart))

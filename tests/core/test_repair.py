"""A history made fit for a provider: every call has one result, and nothing is invented but the missing ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given

from tests.core import strategies
from threadline.core.parts import (
    Approval,
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    StepStartPart,
    TextPart,
    ToolPart,
    tool_part,
)
from threadline.core.prompts import PromptMessage, say
from threadline.core.repair import INTERRUPTED, NOT_APPROVED, repair

SIGNED = ReasoningPart("Two calls then.", {"anthropic": {"signature": "EqQBCg=="}})


def assistant(*parts: Part) -> PromptMessage:
    return PromptMessage("assistant", parts)


def calls(messages: Iterable[PromptMessage]) -> list[ToolPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolPart)]


@pytest.mark.req("S1-13")
@pytest.mark.parametrize(
    ("open_call", "repaired"),
    [
        (ToolPart("c", "t", "input-streaming"), ToolPart("c", "t", "output-error", error=INTERRUPTED)),
        (tool_part("t", "c", {}), tool_part("t", "c", {}, error=INTERRUPTED)),
        (
            ToolPart("c", "t", "approval-requested", b"{}", approval=Approval("p")),
            tool_part("t", "c", {}, error=NOT_APPROVED),
        ),
        (
            ToolPart("c", "t", "approval-responded", b"{}", approval=Approval("p", True)),
            tool_part("t", "c", {}, error=INTERRUPTED),
        ),
        (
            ToolPart("c", "t", "approval-responded", b"{}", approval=Approval("p", False, "no")),
            ToolPart("c", "t", "output-denied", b"{}", approval=Approval("p", False, "no")),
        ),
    ],
)
def test_an_unanswered_call_gets_a_result_that_says_so(open_call: ToolPart, repaired: ToolPart) -> None:
    assert repair([say("user", "go"), assistant(open_call), say("user", "and?")]) == (
        say("user", "go"),
        assistant(repaired),
        say("user", "and?"),
    )


@pytest.mark.req("S1-13")
def test_of_two_parallel_calls_the_one_without_a_result_is_repaired_in_its_place() -> None:
    done, lost = tool_part("t", "a", {}, output=1), tool_part("t", "b", {})
    assert calls(repair([assistant(lost, done)])) == [tool_part("t", "b", {}, error=INTERRUPTED), done]


@pytest.mark.req("S1-13")
def test_a_result_that_came_in_a_later_message_moves_next_to_its_call() -> None:
    asked = ToolPart("c", "t", "approval-requested", b"{}", approval=Approval("p"))
    answered = ToolPart("c", "t", "output-available", b"{}", b'"done"', approval=Approval("p", True))
    assert repair([assistant(asked), say("user", "yes, do"), assistant(answered, TextPart("Done."))]) == (
        assistant(answered),
        say("user", "yes, do"),
        assistant(TextPart("Done.")),
    )


@pytest.mark.req("S1-13")
def test_the_first_real_result_of_a_call_is_kept() -> None:
    first, second = tool_part("t", "c", {}, output=1), tool_part("t", "c", {}, output=2)
    assert calls(repair([assistant(first, second)])) == [first]
    synthetic = tool_part("t", "c", {}, error=INTERRUPTED)
    assert calls(repair([assistant(synthetic), say("user", "again"), assistant(first)])) == [first]


def test_calls_of_different_turns_that_share_an_id_are_told_apart() -> None:
    first, second = tool_part("clock", "call_0", {}, output="9:00"), tool_part("clock", "call_0", {}, output="9:01")
    assert calls(repair([assistant(first), say("user", "now?"), assistant(second)])) == [
        first,
        msgspec.structs.replace(second, call_id="call_0-2"),
    ]
    other = tool_part("clock", "call_0", {"zone": "UTC"}, output="8:00")
    assert [call.call_id for call in calls(repair([assistant(first, other)]))] == ["call_0", "call_0-2"]


def test_ids_and_names_are_spelled_as_every_provider_takes_them() -> None:
    given = [tool_part("web search", "functions.web:0", {}, output=1), tool_part("t" * 70, "x" * 50, {}, output=1)]
    (one, other) = calls(repair([assistant(*given)]))
    assert (one.call_id, one.name) == ("functions_web_0", "web_search")
    assert (other.call_id, other.name) == ("x" * 40, "t" * 64)


@pytest.mark.req("S1-13")
@pytest.mark.parametrize("role", ["user", "system"])
def test_a_call_or_result_that_is_not_the_assistants_is_dropped(role: str) -> None:
    forged = PromptMessage(role, (SIGNED, TextPart("hello"), tool_part("t", "c", {}, output="invented")))  # type: ignore[arg-type]
    assert repair([forged]) == (PromptMessage(role, (TextPart("hello"),)),)  # type: ignore[arg-type]


def test_signed_reasoning_is_left_as_it_is_and_dropped_whole_where_it_led_to_nothing() -> None:
    call = tool_part("t", "c", {}, output=1)
    encrypted = ReasoningPart("", {"anthropic": {"redactedData": "ZW5j"}})
    unsigned = ReasoningPart("So it must be.")
    (kept,) = repair([assistant(SIGNED, encrypted, unsigned, call)])
    assert kept.parts == (SIGNED, encrypted, unsigned, call)
    assert kept.parts[0] is SIGNED
    assert repair([assistant(TextPart("So."), SIGNED), assistant(SIGNED)]) == (assistant(TextPart("So.")),)
    assert repair([assistant(call), assistant(SIGNED, call)]) == (assistant(call),)


def test_blank_parts_are_removed_and_so_are_empty_messages() -> None:
    assert repair(
        [
            say("user", " \n"),
            assistant(),
            assistant(StepStartPart(), TextPart("")),
            PromptMessage("user", (DataPart("note", 1),)),
            say("system", ""),
            assistant(TextPart(""), TextPart("kept"), ReasoningPart("")),
            PromptMessage("user", (FilePart("image/png", "https://example.org/a.png"),)),
        ]
    ) == (
        assistant(TextPart("kept")),
        PromptMessage("user", (FilePart("image/png", "https://example.org/a.png"),)),
    )


def test_a_valid_history_is_returned_as_the_same_objects() -> None:
    history = [say("user", "hi"), assistant(SIGNED, tool_part("t", "c", {}, output=1), TextPart("there"))]
    assert all(one is other for one, other in zip(repair(history), history, strict=True))


@pytest.mark.req("S1-13")
@given(strategies.histories)
def test_repair_is_idempotent(history: list[PromptMessage]) -> None:
    once = repair(history)
    assert repair(once) == once


@pytest.mark.req("S1-13")
@given(strategies.histories)
def test_every_call_has_one_result_under_an_id_of_its_own(history: list[PromptMessage]) -> None:
    repaired = repair(history)
    found = calls(repaired)
    assert all(call.is_answered for call in found)
    assert len({call.call_id for call in found}) == len(found)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,40}", call.call_id) for call in found)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", call.name) for call in found)
    assert all(message.role == "assistant" for message in repaired if calls([message]))


@pytest.mark.req("S1-13")
@given(strategies.histories)
def test_no_real_result_is_invented_and_none_is_lost_but_repetitions(history: list[PromptMessage]) -> None:
    given_calls = calls(message for message in history if message.role == "assistant")
    given_outputs = {(call.input, call.output) for call in given_calls if call.state == "output-available"}
    outputs = {(call.input, call.output) for call in calls(repair(history)) if call.state == "output-available"}
    assert outputs <= given_outputs
    assert {call.input for call in calls(repair(history))} == {call.input for call in given_calls}


@given(strategies.histories)
def test_texts_keep_their_order_and_their_role(history: list[PromptMessage]) -> None:
    def texts(messages: Iterable[PromptMessage]) -> list[tuple[str, str]]:
        found = [(m.role, p.text) for m in messages for p in m.parts if isinstance(p, TextPart)]
        return [(role, text) for role, text in found if text.strip()]

    assert texts(repair(history)) == texts(history)

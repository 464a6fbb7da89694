"""Approvals across turns, as values: what waits, what an answer makes of it, and what a client may not slip in."""

from __future__ import annotations

import pytest

from threadline.core.approvals import ApprovalDecision, Pending, apply_answers, check_claims, list_pending, read_answers
from threadline.core.errors import InvalidInput
from threadline.core.event_fold import Fold
from threadline.core.events import Event, StepStart, TextDelta, ToolCall, ToolDenied, ToolError, ToolResult
from threadline.core.parts import Approval, Part, StepStartPart, TextPart, ToolPart, decode, encode, tool_part

WAITING = ToolPart("c1", "pay", "approval-requested", b'{"sum":5}', approval=Approval("a1"))
ALSO = ToolPart("c2", "pay", "approval-requested", b"{}", approval=Approval("a2"))
LOOKED = tool_part("look", "c0", {"at": 1}, output="seen")
REPLY: tuple[Part, ...] = (TextPart("I will pay."), LOOKED, WAITING, ALSO)
BOTH = {"a1": ApprovalDecision(True), "a2": ApprovalDecision(False, "too dear")}


def responded(part: ToolPart, **changes: object) -> ToolPart:
    fields = {"call_id": part.call_id, "name": part.name, "input": part.input, "state": "approval-responded"}
    approval = Approval(part.approval.id if part.approval else "", True)
    return ToolPart(**{**fields, "approval": approval, **changes})  # type: ignore[arg-type]


def test_pending_requests_are_listed_with_their_calls() -> None:
    assert list_pending(REPLY) == [Pending("a1", "c1", "pay", {"sum": 5}), Pending("a2", "c2", "pay", {})]


def test_answers_change_only_their_calls() -> None:
    said, looked, first, second = apply_answers(REPLY, BOTH)
    assert (said, looked) == REPLY[:2]
    assert first == ToolPart("c1", "pay", "approval-responded", b'{"sum":5}', approval=Approval("a1", True))
    assert second == ToolPart("c2", "pay", "approval-responded", b"{}", approval=Approval("a2", False, "too dear"))
    assert list_pending(apply_answers(REPLY, BOTH)) == []


@pytest.mark.parametrize(
    "answers", [{"a1": ApprovalDecision(True)}, {**BOTH, "a3": ApprovalDecision(True)}, {"a3": ApprovalDecision(True)}]
)
def test_each_request_has_one_answer_and_each_answer_a_request(answers: dict[str, ApprovalDecision]) -> None:
    with pytest.raises(InvalidInput):
        apply_answers(REPLY, answers)


@pytest.mark.req("S1-02")
@pytest.mark.parametrize(
    "claimed",
    [
        responded(WAITING, call_id="c9"),
        responded(WAITING, name="steal"),
        responded(WAITING, input=b'{"sum":6}'),
        responded(WAITING, input=b'{"sum":true}'),
        responded(WAITING, input=None),
        responded(WAITING, output=b'"paid"'),
        responded(WAITING, error="failed"),
        responded(WAITING, approval=Approval("a2", True)),
        ToolPart("c1", "pay", "output-available", b'{"sum":5}', b'"paid"'),
        tool_part("look", "c0", {"at": 1}, output="something else"),
        tool_part("look", "c0", {"at": 1}, error="failed"),
        tool_part("look", "c0", {"at": 1}),
    ],
)
def test_a_client_cannot_insert_a_call_an_input_or_a_result(claimed: ToolPart) -> None:
    with pytest.raises(InvalidInput):
        check_claims(REPLY, [claimed])


def test_a_call_cannot_be_claimed_twice() -> None:
    with pytest.raises(InvalidInput):
        check_claims(REPLY, [responded(WAITING), responded(WAITING)])


def test_numbers_are_compared_as_doubles() -> None:
    given = b'{"n":12345678901234567890,"x":1.0,"y":[2,-0.0]}'
    stored = ToolPart("c1", "pay", "approval-requested", given, approval=Approval("a1"))
    check_claims([stored], [responded(stored, input=b'{"y":[2.0,0],"x":1,"n":12345678901234567000}')])
    check_claims(REPLY, [LOOKED, responded(WAITING), responded(ALSO)])


def test_an_answer_is_approved_or_denied_once() -> None:
    assert read_answers([LOOKED, responded(WAITING)]) == {"a1": ApprovalDecision(True)}
    for bad in ([responded(WAITING, approval=Approval("a1"))], [responded(WAITING, approval=None)]):
        with pytest.raises(InvalidInput):
            read_answers(bad)
    with pytest.raises(InvalidInput):
        read_answers([responded(WAITING), responded(ALSO, approval=Approval("a1", False))])


@pytest.mark.req("S1-11", "S1-12")
def test_a_reply_continues_at_its_end_and_its_calls_keep_their_place() -> None:
    fold = Fold(apply_answers(REPLY, BOTH))
    said: list[Event] = [
        ToolCall("c1", "pay", {"sum": 5}),
        ToolCall("c2", "pay", {}),
        ToolResult("c1", "paid"),
        ToolDenied("c2", "too dear"),
        StepStart(),
        TextDelta("Done."),
    ]
    published = [event for each in said for event in fold.add(each)]
    assert published == said[2:]
    assert fold.anomalies == {}
    first = ToolPart("c1", "pay", "output-available", b'{"sum":5}', b'"paid"', approval=Approval("a1", True))
    second = ToolPart("c2", "pay", "output-denied", b"{}", approval=Approval("a2", False, "too dear"))
    assert fold.parts() == (*REPLY[:2], first, second, StepStartPart(), TextPart("Done."))
    assert decode(encode(fold.parts())) == fold.parts()


def test_a_tool_that_was_approved_and_failed_stays_approved() -> None:
    fold = Fold(apply_answers((WAITING,), {"a1": ApprovalDecision(True)}))
    fold.add(ToolError("c1", "no money"))
    (part,) = fold.parts()
    assert part == ToolPart("c1", "pay", "output-error", b'{"sum":5}', error="no money", approval=Approval("a1", True))

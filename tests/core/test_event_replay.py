"""A stored reply as events: folded, they give the reply again."""

from __future__ import annotations

from threadline.core.approvals import ApprovalDecision, ToolOutput, apply_answers
from threadline.core.event_fold import Fold
from threadline.core.event_replay import replay_events
from threadline.core.events import Finish, StepStart, TextDelta, ToolCall, ToolDenied, ToolResult
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

REPLY: tuple[Part, ...] = (
    StepStartPart(),
    ReasoningPart("Hm.", {"provider": {"signature": "s"}}),
    TextPart("Let me see."),
    tool_part("look", "c1", {"at": 1}, output=None),
    tool_part("look", "c2", {"at": 2}, error="blind"),
    tool_part("look", "c3", {"at": 3}),
    ToolPart("c4", "look", "output-denied", b"{}", approval=Approval("c4", False, "no")),
    ToolPart("c5", "pay", "approval-requested", b'{"sum":5}', approval=Approval("a5")),
    SourceUrlPart("s", "http://x", "X"),
    StepStartPart(),
    TextPart("So."),
)


def fold(parts: tuple[Part, ...], begun: tuple[Part, ...] = (), **known: object) -> tuple[Part, ...]:
    made = Fold(begun)
    for event in replay_events(parts, **known):  # type: ignore[arg-type]
        made.add(event)
    return made.parts()


def test_folding_what_is_replayed_gives_the_reply() -> None:
    assert fold(REPLY) == REPLY


def test_a_continued_reply_is_replayed_from_where_it_continued() -> None:
    asked = apply_answers(REPLY[:8], {"a5": ApprovalDecision(True), "c3": ToolOutput("late")})
    whole = Fold(asked)
    for event in (ToolResult("c5", "paid"), StepStart(), TextDelta("Done."), Finish()):
        whole.add(event)
    parts = whole.parts()
    replayed = replay_events(parts, known=8, still_open=["c3", "c5"])
    assert replayed == [ToolResult("c3", "late"), ToolResult("c5", "paid"), StepStart(), TextDelta("Done.")]
    assert fold(parts, asked, known=8, still_open=["c3", "c5"]) == parts


def test_a_denial_is_replayed_with_its_reason() -> None:
    assert replay_events(REPLY[6:7]) == [ToolCall("c4", "look", {}), ToolDenied("c4", "no")]

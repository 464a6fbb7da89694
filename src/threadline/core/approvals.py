"""Approvals across turns: a reply that waits for a person, and the same reply with what the person said.

A turn that needs an approval ends with the call open, in state `approval-requested`. A response answers every request
of that reply. What a client sends along with its answers is compared with what was stored, so that a client cannot
insert a call, an input or a result. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from threadline.core.errors import InvalidInput
from threadline.core.parts import Approval, Part, ToolPart
from threadline.core.plain_values import PlainValue


class ApprovalDecision(msgspec.Struct, frozen=True):
    """A person's answer to one request."""

    approved: bool
    reason: str | None = None


class Pending(PlainValue, frozen=True):
    """A call that waits for an answer under its approval id."""

    approval_id: str
    call_id: str
    name: str
    input: Any


def list_pending(parts: Iterable[Part]) -> list[Pending]:
    """The unanswered requests of a reply, in order."""
    return [
        Pending(part.approval.id, part.call_id, part.name, part.input_value())
        for part in parts
        if isinstance(part, ToolPart) and part.state == "approval-requested" and part.approval is not None
    ]


def apply_answers(parts: Sequence[Part], answers: Mapping[str, ApprovalDecision]) -> tuple[Part, ...]:
    """The reply with its answers. InvalidInput unless each request has one and each answer has a request."""
    asked = {each.approval_id for each in list_pending(parts)}
    if unasked := sorted(answers.keys() - asked):
        raise InvalidInput(f"approval {unasked[0]!r} was not requested by this reply")
    if missing := sorted(asked - answers.keys()):
        raise InvalidInput(f"approval {missing[0]!r} has no answer: answer all requests of a reply together")
    return tuple(_apply_answer(part, answers) for part in parts)


def _apply_answer(part: Part, answers: Mapping[str, ApprovalDecision]) -> Part:
    if not isinstance(part, ToolPart) or part.state != "approval-requested" or part.approval is None:
        return part
    said = answers[part.approval.id]
    approval = Approval(part.approval.id, said.approved, said.reason)
    return msgspec.structs.replace(part, state="approval-responded", approval=approval)


def read_answers(claimed: Iterable[ToolPart]) -> dict[str, ApprovalDecision]:
    """The answers among the tool calls that a client sent. InvalidInput for one that says neither yes nor no."""
    answers: dict[str, ApprovalDecision] = {}
    for part in claimed:
        if part.state != "approval-responded":
            continue
        given = part.approval
        if given is None or given.approved is None:
            raise InvalidInput("an answered approval must have an id and `approved` true or false")
        if given.id in answers:
            raise InvalidInput(f"approval {given.id!r} is answered twice")
        answers[given.id] = ApprovalDecision(given.approved, given.reason)
    return answers


def check_claims(stored: Iterable[Part], claimed: Iterable[ToolPart]) -> None:
    """InvalidInput if the calls that a client sent back are not those of the stored reply: another tool, another input,
    a result that no tool gave, an answer under a request that was another call's."""
    known = {part.call_id: part for part in stored if isinstance(part, ToolPart)}
    for part in claimed:
        ours = known.pop(part.call_id, None)
        if ours is None:
            raise InvalidInput(f"call {part.call_id!r} is not in this reply")
        if not _is_same(ours, part):
            raise InvalidInput(f"call {part.call_id!r} differs from the stored one")


def _is_same(ours: ToolPart, theirs: ToolPart) -> bool:
    if ours.name != theirs.name or not _equal(ours.input_value(), theirs.input_value()):
        return False
    if theirs.state == "approval-responded" and ours.state == "approval-requested":
        return _id(ours) == _id(theirs) and theirs.output is None and theirs.error is None
    same_result = _equal(ours.output_value(), theirs.output_value()) and ours.error == theirs.error
    return ours.state == theirs.state and same_result


def _id(part: ToolPart) -> str | None:
    return None if part.approval is None else part.approval.id


def _equal(ours: Any, theirs: Any) -> bool:
    """Whether two JSON values are the same to a client whose numbers are all doubles."""
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return _double(ours) == _double(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_equal(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    return bool(ours == theirs)


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")

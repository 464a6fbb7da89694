"""What a reply waits for: a reply with open calls, and the same reply with what a person or a client said.

A turn may end with calls open: in state `approval-requested` they wait for a person's decision, in state
`input-available` for the output of a tool that the client runs. A response answers every open call of that reply. What
a client sends along with its answers is compared with what was stored, so that a client cannot insert a call, an input
or a result. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.parts import Approval, Part, ToolPart
from threadline.core.plain_values import PlainValue

MAX_OUTPUT_BYTES = 262_144
"""Of one client tool: the model is shown all of it."""
_FAILED = "the tool failed"
NOT_ASKED = "this tool needs approval, and nobody could be asked here"
"""The reason of a denial that no person gave."""


class ApprovalDecision(msgspec.Struct, frozen=True):
    """A person's answer to one request."""

    approved: bool
    reason: str | None = None


class ToolOutput(msgspec.Struct, frozen=True):
    """What a client tool gave: plain JSON data, or the error that it ended with."""

    output: Any = None
    error: str | None = None

    def encoded(self) -> bytes | None:
        """The output as JSON, None for an error. InvalidInput for what JSON cannot express; LimitExceeded."""
        raw = None if self.error is not None else jsontext.dump(self.output, "tool output")
        size = len((self.error or "").encode(errors="surrogatepass")) if raw is None else len(raw)
        if size > MAX_OUTPUT_BYTES:
            raise LimitExceeded("tool output size in bytes", MAX_OUTPUT_BYTES, size)
        return raw


Answer: TypeAlias = ApprovalDecision | ToolOutput


class Pending(PlainValue, frozen=True):
    """A call that waits for an answer. `approval_id` is None if it waits for the output of a client tool."""

    approval_id: str | None
    call_id: str
    name: str
    input: Any

    @property
    def id(self) -> str:
        """What its answer is given under: the approval's id, or the call's."""
        return self.call_id if self.approval_id is None else self.approval_id


def list_pending(parts: Iterable[Part]) -> list[Pending]:
    """The open calls of a reply whose turn was executed, in order."""
    found = [part for part in parts if isinstance(part, ToolPart) and part.state in _WAITING]
    return [
        Pending(None if part.approval is None else part.approval.id, part.call_id, part.name, part.input_value())
        for part in found
    ]


_WAITING = ("approval-requested", "input-available")


def apply_answers(parts: Sequence[Part], answers: Mapping[str, Answer]) -> tuple[Part, ...]:
    """The reply with its answers. InvalidInput unless each open call has one and each answer has a call."""
    waiting = {each.id: each for each in list_pending(parts)}
    if unasked := sorted(answers.keys() - waiting.keys()):
        raise InvalidInput(f"{_kind(answers[unasked[0]])} {unasked[0]!r} was not requested by this reply")
    if missing := sorted(waiting.keys() - answers.keys()):
        kind = "call" if waiting[missing[0]].approval_id is None else "approval"
        raise InvalidInput(f"{kind} {missing[0]!r} has no answer: answer all requests of a reply together")
    return tuple(_apply_answer(part, answers) for part in parts)


def _kind(answer: Answer) -> str:
    return "approval" if isinstance(answer, ApprovalDecision) else "output of call"


def _apply_answer(part: Part, answers: Mapping[str, Answer]) -> Part:
    if not isinstance(part, ToolPart) or part.state not in _WAITING:
        return part
    said = answers[part.call_id if part.approval is None else part.approval.id]
    if part.approval is None:
        if isinstance(said, ApprovalDecision):
            raise InvalidInput(f"call {part.call_id!r} waits for an output, got a decision: answer with ToolOutput(…)")
        raw, error = said.encoded(), None if said.error is None else said.error or _FAILED
        state = "output-available" if error is None else "output-error"
        return msgspec.structs.replace(part, state=state, output=raw, error=error)
    if isinstance(said, ToolOutput):
        raise InvalidInput(f"approval {part.approval.id!r} waits for a decision, got an output")
    approval = Approval(part.approval.id, said.approved, said.reason)
    return msgspec.structs.replace(part, state="approval-responded", approval=approval)


def read_answers(claimed: Iterable[ToolPart], waiting: Collection[str] = ()) -> dict[str, Answer]:
    """The answers among the tool calls that a client sent: its decisions, and its outputs of the calls in `waiting`.
    InvalidInput for a decision that says neither yes nor no, and for two answers to one call."""
    answers: dict[str, Answer] = {}
    for part in claimed:
        found = _read_answer(part, waiting)
        if found is None:
            continue
        if found[0] in answers:
            raise InvalidInput(f"{_kind(found[1])} {found[0]!r} is answered twice")
        answers[found[0]] = found[1]
    return answers


def _read_answer(part: ToolPart, waiting: Collection[str]) -> tuple[str, Answer] | None:
    if part.state == "approval-responded":
        given = part.approval
        if given is None or given.approved is None:
            raise InvalidInput("an answered approval must have an id and `approved` true or false")
        return given.id, ApprovalDecision(given.approved, given.reason)
    if part.call_id in waiting and part.state == "output-available":
        return part.call_id, ToolOutput(part.output_value())
    if part.call_id in waiting and part.state == "output-error":
        return part.call_id, ToolOutput(error=part.error or _FAILED)
    return None


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
    if theirs.state in ("output-available", "output-error") and ours.state == "input-available":
        return True
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

"""The tool calls of a reply while it is folded: from the first piece of input to the one result.

Each call gets an id that is unique in the reply, because small model servers name every call `call_0`. An input event
goes to the newest call of its id while that one's input is incomplete, a result to the oldest call without one. The
first result stays; an event that belongs to no call is ignored and counted.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from threadline.core import jsontext
from threadline.core.agent_anomalies import AnomalyCounter, AnomalyKind
from threadline.core.errors import InvalidInput
from threadline.core.events import (
    ApprovalRequest,
    Event,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)
from threadline.core.parts import Approval, ToolPart, ToolState
from threadline.core.sanitize import make_unique

InputEvent: TypeAlias = ToolInputStart | ToolInputDelta | ToolCall
AnswerEvent: TypeAlias = ApprovalRequest | ToolResult | ToolError | ToolDenied


class Call:
    """A call so far."""

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.state: ToolState = "input-streaming"
        self.pieces: list[str] = []
        self.input: bytes | None = None
        self.output: bytes | None = None
        self.error: str | None = None
        self.approval: Approval | None = None

    @property
    def is_answered(self) -> bool:
        return self.state in ("output-available", "output-error", "output-denied")

    def part(self) -> ToolPart:
        given = _partial_input("".join(self.pieces)) if self.input is None else self.input
        return ToolPart(self.id, self.name, self.state, given, self.output, self.error, self.approval)


def _partial_input(text: str) -> bytes | None:
    """Input that was never completed: as JSON if it is valid, else as a string."""
    if not text:
        return None
    try:
        jsontext.parse(text, "tool input")
    except InvalidInput:
        return jsontext.dump(text, "tool input")
    return text.encode()


class Taken(NamedTuple):
    """The effect of an event: what to publish, and the call that it began, if any."""

    published: tuple[Event, ...] = ()
    begun: Call | None = None


class Calls:
    """Every call of one reply."""

    def __init__(self, anomalies: AnomalyCounter) -> None:
        self._anomalies = anomalies
        self._by_id: dict[str, list[Call]] = {}
        self._ids: set[str] = set()

    def restore(self, part: ToolPart) -> Call:
        """A call of the reply that this turn continues."""
        call = Call(part.call_id, part.name)
        call.state, call.input, call.output = part.state, part.input, part.output
        call.error, call.approval = part.error, part.approval
        self._by_id.setdefault(call.id, []).append(call)
        self._ids.add(call.id)
        return call

    def take(self, event: InputEvent) -> Taken:
        newest = self._by_id.get(event.call_id, [None])[-1]
        coming = newest if newest is not None and newest.state == "input-streaming" else None
        match event:
            case ToolInputDelta():
                if coming is None:
                    return self._ignore("unknown-call" if newest is None else "late-input", event.call_id)
                coming.pieces.append(self._anomalies.sanitize_text(event.text))
                return Taken((ToolInputDelta(coming.id, coming.pieces[-1]),))
            case ToolInputStart():
                if coming is not None:
                    return self._ignore("repeated-call", event.call_id)
                call = self._begin(event.call_id, event.name)
                return Taken((ToolInputStart(call.id, call.name),), call)
            case ToolCall():
                return self._complete(event, newest, coming)

    def _complete(self, event: ToolCall, newest: Call | None, coming: Call | None) -> Taken:
        given = self._anomalies.sanitize_json(event.input, "tool input")
        name = self._anomalies.sanitize_text(event.name)
        if newest is not None and newest.state == "approval-responded":
            # Repeated by the agent that continues the reply: its readers have this call already.
            return Taken()
        if newest is not None and not newest.is_answered and (newest.name, newest.input) == (name, given.json):
            return self._ignore("repeated-call", event.call_id)
        call = coming or self._begin(event.call_id, name)
        call.name = name or call.name
        call.state, call.input = "input-available", given.json
        return Taken((ToolCall(call.id, call.name, given.value),), None if coming else call)

    def _begin(self, call_id: str, name: str) -> Call:
        if call_id in self._by_id:
            self._anomalies.note("repeated-id", call_id)
        unique = make_unique(self._anomalies.sanitize_text(call_id) or "call", self._ids)
        call = Call(unique, self._anomalies.sanitize_text(name) or "unnamed")
        self._by_id.setdefault(call_id, []).append(call)
        self._ids.add(unique)
        return call

    def answer(self, event: AnswerEvent) -> Taken:
        same = self._by_id.get(event.call_id)
        if same is None:
            return self._ignore("unknown-call", event.call_id)
        call = next((call for call in same if not call.is_answered), None)
        if call is None:
            return self._ignore("repeated-result", event.call_id)
        return Taken((self._settle(call, event),))

    def _settle(self, call: Call, event: AnswerEvent) -> Event:
        match event:
            case ToolResult():
                output = self._anomalies.sanitize_json(event.output, "tool output")
                if not event.preliminary:
                    call.state, call.output = "output-available", output.json
                    call.approval = _decided(call.approval, approved=True)
                return ToolResult(call.id, output.value, event.preliminary)
            case ToolError():
                # The AI SDK accepts only an approved request here: one that was not approved is dropped.
                if call.approval is not None and not call.approval.approved:
                    call.approval = None
                call.state, call.error = "output-error", self._anomalies.sanitize_text(event.error)
                return ToolError(call.id, call.error)
            case ToolDenied():
                reason = None if event.reason is None else self._anomalies.sanitize_text(event.reason)
                # The AI SDK has no denial without an approval: one that was not requested gets the id of its call.
                call.approval = _decided(call.approval or Approval(call.id), approved=False, reason=reason)
                call.state = "output-denied"
                return ToolDenied(call.id, reason)
            case ApprovalRequest():
                approval_id = self._anomalies.sanitize_text(event.approval_id)
                call.state, call.approval = "approval-requested", Approval(approval_id)
                return ApprovalRequest(call.id, approval_id)

    def _ignore(self, kind: AnomalyKind, call_id: str) -> Taken:
        self._anomalies.note(kind, call_id)
        return Taken()


def _decided(approval: Approval | None, *, approved: bool, reason: str | None = None) -> Approval | None:
    return None if approval is None else Approval(approval.id, approved, reason)

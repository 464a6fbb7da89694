"""The state of a reply while the loop runs: its parts so far, its open calls, and the prompt for the next round.

If the prompt ends with an assistant message, the reply continues it. Its open calls (of a tool that a crash
interrupted, or whose approval has been decided since) are emitted again, so that the events of a turn are complete
without those of the turn before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from threadline.agents.call_runner import Outcome
from threadline.agents.limits import RunLimits, TimeBudget
from threadline.core.errors import AgentFailed
from threadline.core.event_fold import Fold
from threadline.core.events import (
    ApprovalRequest,
    Data,
    Event,
    Failure,
    File,
    FinalText,
    Finish,
    MessageMetadata,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolResult,
    Usage,
)
from threadline.core.parts import Approval, Part, ToolPart
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.sanitize import sanitize_json
from threadline.core.steered_messages import SteeredMessage, split_at_steered, steered_marker


class ReplyBuilder:
    def __init__(self, prompt: Prompt, *, limit: int) -> None:
        self._history: tuple[PromptMessage, ...] = prompt.messages
        self._earlier_parts: tuple[Part, ...] = ()
        self._unanswered: tuple[ToolPart, ...] = ()
        if prompt.messages and prompt.messages[-1].role == "assistant":
            self._history = prompt.messages[:-1]
            self._continue(prompt.messages[-1].parts)
        self._fold = Fold()
        self._steered = dict(prompt.steered)
        self._bytes_left = limit
        self._limit = limit
        self.calls: list[ToolCall] = []
        """Calls of the current round that have no result yet, in order."""
        self.end = Finish()
        """The last event of the reply; updated by every round, emitted once."""
        self.waits = False
        """Whether a call waits for an approval or for a client's output: then the reply ends here."""
        self.approvals: dict[str, Approval] = {}
        """Decisions on requests of an earlier turn, by call id."""

    def _continue(self, parts: tuple[Part, ...]) -> None:
        still_open = [part for part in parts if isinstance(part, ToolPart) and not part.is_answered]
        self._earlier_parts = tuple(part for part in parts if part not in still_open)
        self._unanswered = tuple(part for part in still_open if part.state != "input-streaming")

    def replay_open_calls(self) -> list[Event]:
        """The open calls of the message that this reply continues."""
        events: list[Event] = []
        for part in self._unanswered:
            events += self.add(ToolCall(part.call_id, part.name, part.input_value()))
            if part.approval is not None:
                self.approvals[part.call_id] = part.approval
        return events

    def add(self, event: Event) -> Sequence[Event]:
        """The events to emit for this one. AgentFailed if the reply would exceed its size limit (the event is not
        emitted then), or if the event is a Failure."""
        if isinstance(event, Failure):
            raise AgentFailed(event.error)
        self._bytes_left -= _size(event)
        if self._bytes_left < 0:
            raise AgentFailed(f"the reply grew beyond {self._limit:,} bytes and was stopped")
        if isinstance(event, Finish):
            self.end = event
            return ()
        if isinstance(event, Usage):
            return (event,)
        emitted = self._fold.add(event)
        self.calls += [each for each in emitted if isinstance(each, ToolCall)]
        return emitted

    def add_outcome(self, outcome: Outcome) -> Outcome:
        """The outcome to emit. One that is too large for the reply becomes an error, so that the call has a result."""
        if _size(outcome) > self._bytes_left:
            outcome = ToolError(outcome.call_id, "the result is too large for this reply")
        self._bytes_left -= min(_size(outcome), self._bytes_left)
        self._fold.add(outcome)
        if isinstance(outcome, ApprovalRequest):
            self.wait()
        return outcome

    def wait(self) -> None:
        self.waits, self.end = True, Finish("tool-calls")

    def messages(self) -> tuple[PromptMessage, ...]:
        """The prompt for the next round."""
        parts = (*self._earlier_parts, *self._fold.parts())
        if not parts:
            return self._history
        return (*self._history, *split_at_steered(PromptMessage("assistant", parts), self._steered))

    @property
    def has_begun(self) -> bool:
        return bool(self._earlier_parts) or self._fold.part_count > 0

    def take_in(self, messages: Sequence[SteeredMessage]) -> None:
        """Shows the user's messages to the model here, after the results of the last round."""
        for message in messages:
            self._fold.add(steered_marker(message.message_id, ""))
            self._steered[message.message_id] = message.parts


async def limit_events(
    events: AsyncGenerator[Event, None], prompt: Prompt, limits: RunLimits | None = None
) -> AsyncGenerator[Event, None]:
    """The events of an agent that runs its own tools, within the limits and with a Finish at the end."""
    limits = limits or RunLimits()
    reply = ReplyBuilder(prompt, limit=limits.reply_bytes)
    with TimeBudget(limits.seconds) as budget:
        async with aclosing(events):
            while (given := await budget.next_from(events)) is not None:
                for event in reply.add(given):
                    yield event
    yield reply.end


def _size(event: Event) -> int:
    match event:
        case TextDelta(text) | ReasoningDelta(text) | FinalText(text) | ToolInputDelta(_, text) | ToolError(_, text):
            return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        case ToolCall(input=given):
            return 0 if given is None else len(str(given))
        case ToolResult(output=output):
            # Sanitized as the fold does: an output that JSON cannot express is repaired, and does not fail the turn.
            return len(sanitize_json(output, "tool output").json)
        case File():
            return len(event.url)
        case Data(data=value) | MessageMetadata(metadata=value):
            return len(sanitize_json(value, "data").json)
    return 0

"""The reply in the making, as the loop sees it: what was said so far, which calls are open, what the model sees next.

A prompt that ends with the assistant's own message is gone on with: its open calls (one waits for a tool that a crash
cut off, or for an approval that has come by now) are said again, so that a turn's events stand on their own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from threadline.agents.calls import Outcome
from threadline.agents.limits import Allowance, Limits
from threadline.core import jsontext
from threadline.core.errors import AgentFailed
from threadline.core.event_fold import Fold
from threadline.core.events import (
    ApprovalRequest,
    Event,
    Failure,
    FinalText,
    Finish,
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


class Reply:
    def __init__(self, prompt: Prompt, *, limit: int) -> None:
        self._before: tuple[PromptMessage, ...] = prompt.messages
        self._begun: tuple[Part, ...] = ()
        self._unanswered: tuple[ToolPart, ...] = ()
        if prompt.messages and prompt.messages[-1].role == "assistant":
            self._before = prompt.messages[:-1]
            self._take_up(prompt.messages[-1].parts)
        self._fold = Fold()
        self._room = limit
        self._limit = limit
        self.calls: list[ToolCall] = []
        """Calls of the present round that still want a result, in order."""
        self.end = Finish()
        """Why the reply ends, as far as is known: it is told last, once."""
        self.awaits_approval = False
        self.approvals: dict[str, Approval] = {}
        """What people answered, by call id, since the approval was asked for."""

    def _take_up(self, parts: tuple[Part, ...]) -> None:
        still_open = [part for part in parts if isinstance(part, ToolPart) and not part.is_answered]
        self._begun = tuple(part for part in parts if part not in still_open)
        self._unanswered = tuple(part for part in still_open if part.state != "input-streaming")

    def say_again(self) -> list[Event]:
        """The open calls of the message that is gone on with."""
        said: list[Event] = []
        for part in self._unanswered:
            said += self.add(ToolCall(part.call_id, part.name, part.input_value()))
            if part.approval is not None:
                self.approvals[part.call_id] = part.approval
        return said

    def add(self, event: Event) -> list[Event]:
        """What to show of an event now. AgentFailed where the reply would outgrow its limit (nothing of it is shown
        then), and where the event says that the agent failed."""
        if isinstance(event, Failure):
            raise AgentFailed(event.error)
        self._room -= _size(event)
        if self._room < 0:
            raise AgentFailed(f"The reply grew past {self._limit:,} bytes and was stopped.")
        if isinstance(event, Finish):
            self.end = event
            return []
        if isinstance(event, Usage):
            return [event]
        shown = list(self._fold.add(event))
        self.calls += [each for each in shown if isinstance(each, ToolCall)]
        return shown

    def answer(self, outcome: Outcome) -> Outcome:
        """The outcome of a call, as it is shown: one too large for this reply becomes an error, never silence."""
        if _size(outcome) > self._room:
            outcome = ToolError(outcome.call_id, "the result found no room in this reply")
        self._room -= min(_size(outcome), self._room)
        self._fold.add(outcome)
        if isinstance(outcome, ApprovalRequest):
            self.awaits_approval, self.end = True, Finish("tool-calls")
        return outcome

    def messages(self) -> tuple[PromptMessage, ...]:
        """What the model is shown next."""
        parts = (*self._begun, *self._fold.parts())
        return (*self._before, PromptMessage("assistant", parts)) if parts else self._before


async def bounded(
    events: AsyncGenerator[Event, None], prompt: Prompt, limits: Limits | None = None
) -> AsyncGenerator[Event, None]:
    """The events of an agent that keeps its tools to itself, within the limits, and with an end."""
    limits = limits or Limits()
    reply = Reply(prompt, limit=limits.reply_bytes)
    with Allowance(limits.seconds) as allowance:
        async with aclosing(events):
            while (said := await allowance.next_of(events)) is not None:
                for event in reply.add(said):
                    yield event
    yield reply.end


def _size(event: Event) -> int:
    match event:
        case TextDelta(text) | ReasoningDelta(text) | FinalText(text) | ToolInputDelta(_, text) | ToolError(_, text):
            return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        case ToolCall(input=given):
            return 0 if given is None else len(str(given))
        case ToolResult(output=output):
            return len(jsontext.dump(output, "tool output"))
    return 0

"""Who answers, and what stands around an answer: the agent, its tools' journal, who approves, who refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, NamedTuple, Protocol

from threadline.core.events import Event, ToolCall
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope
from threadline.core.turns import ToolRun


class ToolJournal(Protocol):
    """Where a tool's run is written down before it starts, so that no crash runs an unrepeatable one twice."""

    async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
        """Stores the intent. An earlier run of this call in this turn, if there was one (with its output if it
        finished), else None: the tool may run."""
        ...

    async def end(self, call_id: str, output: Any) -> None:
        """Stores what came of it: plain JSON data."""
        ...


class Verdict(NamedTuple):
    """`defer` leaves the call open with a request for approval; the turn ends and a later one answers it."""

    answer: Literal["allow", "deny", "defer"]
    reason: str | None = None


class Approver(Protocol):
    async def decide(self, call: ToolCall) -> Verdict: ...


class AgentServices(NamedTuple):
    """What the turn path lends an agent while it answers."""

    journal: ToolJournal
    approver: Approver


class Agent(Protocol):
    def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        """The reply to the prompt, as events. Closing the iterator or cancelling the task that reads it stops the
        work. An agent that cannot go on raises AgentFailed, whose text may be shown to the user."""
        ...


class Guard(Protocol):
    async def check(self, text: str, scope: Scope) -> str | None:
        """None lets the text pass; a sentence for the user refuses it."""
        ...

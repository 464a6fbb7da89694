"""Agents, and what a turn gives them: the journal of tool runs, the approver, the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from threadline.core.client_tools import ClientTool
from threadline.core.events import Event, ToolCall
from threadline.core.prompts import Prompt
from threadline.core.steered_messages import SteeredMessage
from threadline.core.threads import Scope
from threadline.core.turns import ToolRun


class ToolJournal(Protocol):
    """Stores a tool's run before it starts, so that a crash cannot make an unrepeatable tool run twice."""

    async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
        """Stores the intent. An earlier run of this call in this turn, if there was one (with its output if it
        finished), else None: the tool may run."""
        ...

    async def end(self, call_id: str, output: Any) -> None:
        """Stores the output: plain JSON data."""
        ...


class SteeredMessageSource(Protocol):
    async def take(self) -> Sequence[SteeredMessage]:
        """Messages of the user that arrived since the turn began and were not taken before, in order. From now on the
        reply answers them too, so the agent must show them to its model. An agent that never asks for them leaves them
        to be answered after its reply. Never raises."""
        ...


class Verdict(NamedTuple):
    """`defer` leaves the call open with a request for approval; the turn ends and a later one answers it."""

    answer: Literal["allow", "deny", "defer"]
    reason: str | None = None


class Approver(Protocol):
    async def decide(self, call: ToolCall) -> Verdict: ...


class AgentServices(NamedTuple):
    """What an agent may use while it runs."""

    journal: ToolJournal
    approver: Approver
    client_tools: tuple[ClientTool, ...] | None = None
    """Tools that the request declared, for its caller to run; None where no caller can run any."""
    call_tool: Callable[..., Awaitable[Any]] | None = None
    """For an agent that is a function and has tools: `await call_tool(name, key=value)` runs one and returns its
    output."""
    steered: SteeredMessageSource | None = None
    """None where no message can arrive while the agent runs."""


class Agent(Protocol):
    def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        """The reply to the prompt, as events. Closing the iterator or cancelling the task that reads it stops the
        work. An agent that fails raises AgentFailed, whose text may be shown to the user."""
        ...


@runtime_checkable
class WritingAgent(Protocol):
    """An agent whose model can write a text on its own. Optional: without it, summaries are extracts and titles are the
    first words."""

    def write(self, prompt: Prompt) -> AsyncIterator[Event]:
        """The model's answer to a prompt, without tools, as events with its usage. AgentFailed."""
        ...


class Guard(Protocol):
    async def check(self, text: str, scope: Scope) -> str | None:
        """None if the text may pass; otherwise a sentence that tells the user why it is refused."""
        ...

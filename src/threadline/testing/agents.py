"""Test doubles for agents, tools and hooks: a scripted model, services that keep everything in memory, and prompts
from a few texts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from threadline.agents.models import RoundSettings, ToolSpec
from threadline.core import jsontext
from threadline.core.errors import AgentFailed
from threadline.core.events import Event, ToolCall
from threadline.core.parts import TextPart
from threadline.core.prompts import Prompt, PromptMessage
from threadline.core.turns import ToolRun
from threadline.ports import AgentServices, Approver, ToolJournal, Verdict

Step: TypeAlias = Event | Exception | Callable[[], Any]


class ScriptedModel:
    """Plays one list of steps per round: an event is emitted, an exception raised, a function called and awaited.

    `seen` contains the prompt of each round."""

    def __init__(self, *rounds: Sequence[Step]) -> None:
        self._rounds = list(rounds)
        self.seen: list[tuple[PromptMessage, ...]] = []
        self.tools: tuple[ToolSpec, ...] = ()
        self.closed = False

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        self.seen.append(tuple(messages))
        self.tools = tuple(tools)
        if len(self.seen) > len(self._rounds):
            raise AgentFailed(f"script has only {len(self._rounds)} rounds: add one")
        for step in self._rounds[len(self.seen) - 1]:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, msgspec.Struct):
                yield step
            else:
                await step()

    async def close(self) -> None:
        self.closed = True


class MemoryJournal:
    """A journal in memory that behaves like a stored one. `log` contains the calls made to it, in order."""

    def __init__(self, turn_id: str = "turn") -> None:
        self.turn_id = turn_id
        self.runs: dict[str, ToolRun] = {}
        self.log: list[str] = []

    async def begin(self, call: ToolCall, *, repeatable: bool) -> ToolRun | None:
        self.log.append(f"begin {call.call_id}")
        earlier = self.runs.get(call.call_id)
        if earlier is None:
            given = jsontext.dump(call.input, "tool input")
            self.runs[call.call_id] = ToolRun(self.turn_id, call.call_id, call.name, given, repeatable, None, None)
        return earlier

    async def end(self, call_id: str, output: Any) -> None:
        self.log.append(f"end {call_id}")
        written = jsontext.dump(output, "tool output")
        now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self.runs[call_id] = msgspec.structs.replace(self.runs[call_id], output_json=written, finished_at=now)


class FixedApprover:
    """Gives every call the same verdict."""

    def __init__(self, answer: Literal["allow", "deny", "defer"], reason: str | None = None) -> None:
        self._verdict = Verdict(answer, reason)

    async def decide(self, call: ToolCall) -> Verdict:
        return self._verdict


def memory_services(journal: ToolJournal | None = None, approver: Approver | None = None) -> AgentServices:
    """Services that need no store. Without an approver, every call is allowed."""
    return AgentServices(journal or MemoryJournal(), approver or FixedApprover("allow"))


def prompt_of(*texts: str, system: str | None = None, **fields: Any) -> Prompt:
    """A prompt from texts of user and assistant in turn, starting with the user."""
    messages = [
        PromptMessage("assistant" if number % 2 else "user", (TextPart(text),)) for number, text in enumerate(texts)
    ]
    first = [] if system is None else [PromptMessage("system", (TextPart(system),))]
    return Prompt(messages=(*first, *messages), **fields)

"""The agent of the simulation: a model that follows a plan for each question, and tools whose effects are counted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.tools import Tool
from threadline.core.errors import AgentFailed
from threadline.core.events import Event, Finish, TextDelta, ToolCall
from threadline.core.ids import new_id
from threadline.core.parts import TextPart, ToolPart
from threadline.core.prompts import PromptMessage

ToolName: TypeAlias = Literal["pay", "look"]
TOKEN = re.compile(r"\bq[0-9]+\b")
"""Every question is named by a token, and so is everything that answers it."""


class Plan(NamedTuple):
    """What the agent does with one question: tool calls one after another, and then the answer or a failure."""

    calls: tuple[ToolName, ...] = ()
    think_seconds: float = 0.1
    failure: Literal["refusal", "fault"] | None = None


class Effects(Protocol):
    """What the world counts."""

    def plan(self, token: str) -> Plan: ...

    def note_prompt(self, token: str, shown: list[str]) -> None:
        """`shown` are the tokens of everything that the agent was shown."""
        ...

    def note_effect(self, tool: str, token: str, number: int) -> None: ...


def make_agent(effects: Effects) -> LoopAgent:
    async def pay(question: str, number: int) -> str:
        await asyncio.sleep(effects.plan(question).think_seconds / 2)
        effects.note_effect("pay", question, number)
        await asyncio.sleep(effects.plan(question).think_seconds / 2)
        return f"paid for {question}"

    async def look(question: str, number: int) -> str:
        effects.note_effect("look", question, number)
        await asyncio.sleep(effects.plan(question).think_seconds)
        return f"looked for {question}"

    tools = [Tool.from_function(pay, repeatable=False), Tool.from_function(look, repeatable=True)]
    return LoopAgent(PlannedModel(effects), tools)


class PlannedModel:
    """Gives its calls new ids each time it is asked, as real models do."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        asked = next(message for message in reversed(messages) if message.role == "user")
        (token,) = TOKEN.findall(_text(asked))
        self._effects.note_prompt(token, TOKEN.findall(" ".join(_text(message) for message in messages)))
        plan, done = self._effects.plan(token), _calls_made(messages[-1])
        await asyncio.sleep(plan.think_seconds)
        if done < len(plan.calls):
            yield TextDelta(f"on {token}. ")
            yield ToolCall(new_id(), plan.calls[done], {"question": token, "number": done})
            yield Finish("tool-calls")
            return
        yield TextDelta("answer ")
        await asyncio.sleep(plan.think_seconds)
        if plan.failure == "refusal":
            raise AgentFailed(f"cannot answer {token}")
        if plan.failure == "fault":
            raise ValueError(token)
        yield TextDelta(token)
        yield Finish("stop")

    async def close(self) -> None:
        return None


def _text(message: PromptMessage) -> str:
    return " ".join(_part_text(part) for part in message.parts)


def _part_text(part: Any) -> str:
    match part:
        case TextPart():
            return part.text
        case ToolPart():
            return f"{part.input!r} {part.output!r}"
    return ""


def _calls_made(last: PromptMessage) -> int:
    return sum(isinstance(part, ToolPart) for part in last.parts) if last.role == "assistant" else 0

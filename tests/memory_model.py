"""A model that knows only its prompt: it answers from it, summarises it, and never remembers anything itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.tools import tool
from threadline.core.errors import AgentFailed
from threadline.core.events import Event, Finish, TextDelta, ToolCall, Usage
from threadline.core.parts import ToolPart, plain_text
from threadline.core.prompts import PromptMessage

UNKNOWN = "I do not know."


class MemoryModel:
    """Lines with DECISION and the results of tools are what it finds worth keeping."""

    def __init__(self) -> None:
        self.prompts: list[tuple[PromptMessage, ...]] = []
        """Of turns only."""
        self.summaries: list[str] = []
        self.titles = 0
        self.title = "Weather and travel"
        self.gate: asyncio.Event | None = None
        """Summaries and titles wait for it, and set `waiting` then."""
        self.waiting = asyncio.Event()
        self.fault: Any = None
        """What it says instead of a summary or title, or the error that it raises."""

    def agent(self) -> LoopAgent:
        @tool(repeatable=True)
        def measure(place: str) -> str:
            """The temperature at a place."""
            return f"{place} has 17 degrees"

        return LoopAgent(self, [measure])

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        system = plain_text(messages[0].parts) if messages[0].role == "system" else ""
        if "You keep the memory" in system or "Write a title" in system:
            text = await self._write(system, plain_text(messages[-1].parts))
        else:
            self.prompts.append(tuple(messages))
            if (call := self._call(messages)) is not None:
                yield call
                yield Finish("tool-calls")
                return
            text = self._answer(messages)
        yield Usage(input_tokens=100, output_tokens=10)
        yield TextDelta(text)
        yield Finish()

    async def close(self) -> None:
        """Nothing is open."""

    async def _write(self, system: str, given: str) -> str:
        is_title = "Write a title" in system
        self.titles += is_title
        if self.gate is not None:
            self.waiting.set()
            await self.gate.wait()
        if isinstance(self.fault, Exception):
            raise self.fault
        if self.fault is not None:
            return str(self.fault)
        if is_title:
            return self.title
        self.summaries.append(given)
        kept = [line for line in given.splitlines() if "DECISION" in line or "returned" in line]
        return "\n".join(dict.fromkeys(kept)) or "Nothing of note."

    def _call(self, messages: Sequence[PromptMessage]) -> ToolCall | None:
        last = messages[-1]
        return ToolCall("m", "measure", {"place": "Porto"}) if plain_text(last.parts).startswith("Measure") else None

    def _answer(self, messages: Sequence[PromptMessage]) -> str:
        question = plain_text(messages[-1].parts)
        if not question.startswith("What about "):
            return "Noted. " + "This is a reply of some length. " * 2
        word = question.removeprefix("What about ").rstrip("?")
        for message in messages[:-1]:
            outputs = [str(part.output_value()) for part in message.parts if isinstance(part, ToolPart)]
            for line in [*plain_text(message.parts).splitlines(), *outputs]:
                if word in line:
                    return line
        return UNKNOWN


class FailingModel(MemoryModel):
    """Answers, and writes nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = AgentFailed("the model is overloaded")

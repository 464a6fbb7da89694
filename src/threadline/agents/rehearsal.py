"""The rehearsal agent: the default agent, for a first try, for tests and for trying out failures.

It needs no key and no network, gives the same prompt the same reply, streams word by word, and reports what it was
given, so that a user can see that context is kept. Its tools have no side effects; one of them asks for approval. It
uses the same loop as every other agent: only the model is replaced by `rehearsal_script`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec

from threadline.agents import arithmetic
from threadline.agents import rehearsal_script as script
from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.rehearsal_script import Given
from threadline.agents.tools import Tool, ToolSource, tool
from threadline.core import jsontext
from threadline.core.authors import without_author
from threadline.core.context import SNAPSHOT_HEAD
from threadline.core.errors import AgentFailed
from threadline.core.events import (
    Event,
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    Status,
    TextDelta,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)
from threadline.core.parts import ToolPart, plain_text
from threadline.core.prompts import Prompt, PromptMessage, split_rounds
from threadline.ports import AgentServices

_WORD = re.compile(r"\s*\S+")
_FOUND_AT_MOST = 5
OWN_TOOLS = ("calculate", "count_words", "look_back", "stamp")


@tool(repeatable=True)
def calculate(expression: Annotated[str, "such as 2+3*4"]) -> str:
    """Calculate an arithmetic expression exactly."""
    return arithmetic.calculate(expression)


@tool(repeatable=True)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(needs_approval=True)
def stamp(text: str) -> str:
    """Stamp a text with its fingerprint. Asks for approval."""
    return f"{text} [{hashlib.sha256(text.encode()).hexdigest()[:8]}]"


def _look_back(said: Sequence[str]) -> Tool:
    def look_back(words: Annotated[str, "what to look for"]) -> list[str]:
        """Look up what the user said earlier in this thread."""
        return [text for text in said if words.lower() in text.lower()][:_FOUND_AT_MOST]

    return Tool.from_function(look_back, repeatable=True)


class RehearsalAgent:
    """`pace` is a delay in seconds after each word, to make streaming visible. `tools` are called by their names, as in
    "use locate"."""

    def __init__(
        self,
        *,
        pace: float = 0.0,
        tools: Sequence[Tool] = (),
        sources: Sequence[ToolSource] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pace = pace
        self._tools = tuple(tools)
        self._sources = tuple(sources)
        self._sleep = sleep

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        own = list(self._tools)
        for source in self._sources:
            offered = await source.offer()
            own += offered.tools
            for warning in offered.warnings:
                yield Status(warning)
        on_client = {tool.name for tool in own if tool.runs_on == "client"}
        on_client |= {tool.name for tool in services.client_tools or ()}
        given = _given(prompt)._replace(
            client_tools=frozenset() if services.client_tools is None else frozenset(on_client),
            server_tools=frozenset(tool.name for tool in own if tool.runs_on != "client"),
        )
        tools = (calculate, count_words, _look_back(given.said), stamp, *own)
        agent = LoopAgent(_RehearsalModel(given, self._pace, self._sleep), tools)
        async with aclosing(agent.run(prompt, services)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        """Nothing to close."""


class _RehearsalModel:
    def __init__(self, given: Given, pace: float, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._given = given
        self._pace = pace
        self._sleep = sleep

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        calls = _finished_calls(messages)
        answer = script.Answer(script.describe_results(calls)) if calls else script.choose_answer(self._given)
        words = _WORD.findall(answer.text)
        pause = self._pace + answer.seconds / max(len(words), 1)
        if answer.thought:
            yield ReasoningDelta(answer.thought)
            yield ReasoningEnd()
        for word in words:
            yield TextDelta(word)
            if pause:
                await self._sleep(pause)
        if answer.fails:
            raise AgentFailed("the rehearsal agent failed, as requested")
        for number, (name, given) in enumerate(answer.calls):
            call_id = _call_id(messages, settings, number)
            yield ToolInputStart(call_id, name)
            yield ToolInputDelta(call_id, jsontext.dump(given).decode())
            yield ToolCall(call_id, name, given)
        yield Usage(input_tokens=_length(messages), output_tokens=len(words))
        yield Finish("tool-calls" if answer.calls else "stop")

    async def close(self) -> None:
        """Nothing to close."""


def _given(prompt: Prompt) -> Given:
    user_texts = [without_author(plain_text(message.parts)) for message in prompt.messages if message.role == "user"]
    system = [plain_text(message.parts) for message in prompt.messages if message.role == "system"]
    pinned = [text.removeprefix(SNAPSHOT_HEAD) for text in system if text.startswith(SNAPSHOT_HEAD)]
    return Given(
        request=user_texts[-1] if user_texts else "",
        said=tuple(user_texts[:-1]),
        snapshot=pinned[0] if pinned else None,
        left_out=prompt.messages_left_out,
    )


def _finished_calls(messages: Sequence[PromptMessage]) -> tuple[ToolPart, ...]:
    if not messages or messages[-1].role != "assistant":
        return ()
    finished = split_rounds(messages[-1].parts)
    return finished[-1].calls if finished else ()


def _call_id(messages: Sequence[PromptMessage], settings: RoundSettings, number: int) -> str:
    """A hash of the prompt, so that a turn that is run again finds the results of its tools in the journal."""
    seen = msgspec.json.encode((settings.turn_id, messages, number))
    return f"call_{hashlib.sha256(seen).hexdigest()[:16]}"


def _length(messages: Sequence[PromptMessage]) -> int:
    return sum(len(plain_text(message.parts).split()) for message in messages)

"""An agent of Pydantic AI with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel

from tests.frameworks.kits.scripts import Call, Say, Script, Think, words


def make(script: Script) -> Any:
    async def stream(messages: Any, info: Any) -> AsyncIterator[Any]:
        items = await script.next_round((messages, info.instructions))
        for number, item in enumerate(items):
            match item:
                case Say(text):
                    for word in words(text):
                        yield word
                case Think(text):
                    yield {number: DeltaThinkingPart(content=text)}
                case Call(name, given, call_id):
                    yield {number + 1: DeltaToolCall(name, json.dumps(given), tool_call_id=call_id)}

    tools: list[Any] = [script.population, Tool(script.stamp, requires_approval=True), script.wait]
    return Agent(FunctionModel(stream_function=stream), instructions="You are brief.", tools=tools)

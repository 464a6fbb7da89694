"""An agent of Google's ADK with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types

from tests.frameworks.kits.scripts import INPUT_TOKENS, OUTPUT_TOKENS, Call, Item, Say, Script, Think, words


def make(script: Script) -> Any:
    class Model(BaseLlm):
        async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncIterator[Any]:
            items = await script.next_round((request.config.system_instruction, request.contents))
            for item in items:
                if isinstance(item, Say | Think):
                    for word in words(item.text) if isinstance(item, Say) else [item.text]:
                        yield LlmResponse(content=_content([_part(item, word)]), partial=True)
            used = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=INPUT_TOKENS, candidates_token_count=OUTPUT_TOKENS
            )
            yield LlmResponse(content=_content([_part(item) for item in items]), usage_metadata=used)

    tools = [script.population, FunctionTool(script.stamp, require_confirmation=True), script.wait]
    return LlmAgent(name="helper", model=Model(model="scripted"), instruction="You are brief.", tools=tools)


def _content(parts: list[Any]) -> Any:
    return types.Content(role="model", parts=parts)


def _part(item: Item, text: str | None = None) -> Any:
    match item:
        case Call(name, given, call_id):
            return types.Part(function_call=types.FunctionCall(name=name, args=given, id=call_id))
        case Say(whole) | Think(whole):
            return types.Part(text=whole if text is None else text, thought=isinstance(item, Think) or None)
    raise NotImplementedError

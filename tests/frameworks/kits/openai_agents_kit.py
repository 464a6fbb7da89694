"""An agent of the OpenAI Agents SDK with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, function_tool, set_tracing_disabled
from openai.types import responses as api

from tests.frameworks.kits.scripts import INPUT_TOKENS, OUTPUT_TOKENS, Call, Item, Say, Script, Think, words

set_tracing_disabled(True)


def make(script: Script) -> Any:
    tools = [
        function_tool(script.population),
        function_tool(script.stamp, needs_approval=True),
        function_tool(script.wait),
    ]
    return Agent(name="helper", instructions="You are brief.", model=_Model(script), tools=tools)


class _Model(Model):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def get_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def stream_response(self, system: Any, given: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        items = await self._script.next_round((system, given))
        yield api.ResponseCreatedEvent(response=_response([]), sequence_number=0, type="response.created")
        output: list[Any] = []
        for number, item in enumerate(items):
            made = _output(item, number)
            output.append(made)
            added = api.ResponseOutputItemAddedEvent(
                item=made, output_index=number, sequence_number=0, type="response.output_item.added"
            )
            yield added
            for event in _deltas(item, made.id or "", number):
                yield event
            yield api.ResponseOutputItemDoneEvent(
                item=made, output_index=number, sequence_number=0, type="response.output_item.done"
            )
        yield api.ResponseCompletedEvent(response=_response(output), sequence_number=0, type="response.completed")


def _output(item: Item, number: int) -> Any:
    match item:
        case Say(text):
            content = api.ResponseOutputText(text="".join(words(text)), type="output_text", annotations=[])
            return api.ResponseOutputMessage(
                id=f"m{number}", role="assistant", status="completed", type="message", content=[content]
            )
        case Think(text):
            return api.ResponseReasoningItem(
                id=f"r{number}",
                type="reasoning",
                summary=[{"text": text, "type": "summary_text"}],  # type: ignore[list-item]  # pydantic reads it
            )
        case Call(name, given, call_id):
            return api.ResponseFunctionToolCall(
                id=f"f{number}", call_id=call_id, name=name, arguments=json.dumps(given), type="function_call"
            )
    raise NotImplementedError


def _deltas(item: Item, item_id: str, number: int) -> list[Any]:
    place: dict[str, Any] = {"item_id": item_id, "output_index": number, "sequence_number": 0}
    match item:
        case Say(text):
            kind: Any = "response.output_text.delta"
            return [
                api.ResponseTextDeltaEvent(content_index=0, delta=word, logprobs=[], type=kind, **place)
                for word in words(text)
            ]
        case Think(text):
            kind = "response.reasoning_summary_text.delta"
            return [api.ResponseReasoningSummaryTextDeltaEvent(delta=text, summary_index=0, type=kind, **place)]
        case Call(_, given, _):
            kind = "response.function_call_arguments.delta"
            return [api.ResponseFunctionCallArgumentsDeltaEvent(delta=json.dumps(given), type=kind, **place)]
    raise NotImplementedError


def _response(output: list[Any]) -> Any:
    usage = {
        "input_tokens": INPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    fixed = {"id": "r", "created_at": 0, "model": "m", "object": "response", "tool_choice": "auto", "tools": []}
    return api.Response.model_validate({**fixed, "output": output, "parallel_tool_calls": True, "usage": usage})

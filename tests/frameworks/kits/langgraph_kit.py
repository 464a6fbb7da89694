"""A LangGraph graph (a model, and its tools until it calls none) with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, SystemMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from tests.frameworks.kits.scripts import INPUT_TOKENS, OUTPUT_TOKENS, Call, Item, Say, Script, Think, words


def make(script: Script) -> Any:
    model = _Model(script=script)

    def stamp(text: str) -> str:
        """Stamps a text."""
        interrupt("may this be stamped?")
        return script.stamp(text)

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([SystemMessage("You are brief."), *state["messages"]])]}

    tools = [
        StructuredTool.from_function(script.population),
        StructuredTool.from_function(stamp),
        StructuredTool.from_function(coroutine=script.wait, name="wait"),
    ]
    graph = StateGraph(MessagesState).add_node("answer", answer).add_node("tools", ToolNode(tools))
    return graph.add_edge(START, "answer").add_conditional_edges("answer", tools_condition).add_edge(
        "tools", "answer"
    ).compile()  # fmt: skip


class _Model(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def _astream(self, messages: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for item in await self.script.next_round(messages):
            for chunk in _chunks(item):
                yield ChatGenerationChunk(message=AIMessageChunk(**chunk))
        total = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        used = {**total, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=used))


def _chunks(item: Item) -> list[dict[str, Any]]:
    match item:
        case Say(text):
            return [{"content": word} for word in words(text)]
        case Think(text):
            return [{"content": [{"type": "reasoning", "reasoning": text}]}]
        case Call(name, given, call_id):
            whole = json.dumps(given)
            first = {"name": name, "args": whole[:4], "id": call_id, "index": 0, "type": "tool_call_chunk"}
            rest = {"name": None, "args": whole[4:], "id": None, "index": 0, "type": "tool_call_chunk"}
            return [{"content": "", "tool_call_chunks": [piece]} for piece in (first, rest)]
    raise NotImplementedError

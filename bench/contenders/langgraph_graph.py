"""LangGraph: a graph with MessagesState and one node, checkpointed by AsyncSqliteSaver or AsyncPostgresSaver.

A turn is one `ainvoke`: the question goes in, the node adds call, result and answer, and the checkpointer keeps the
state after each step, with the durability it comes with. Reading is the state's last messages.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from bench.workload import Turn

MESSAGES_PER_TURN = 4


class Graph:
    def __init__(self, saver: BaseCheckpointSaver[Any], close: Callable[[], Awaitable[None]]) -> None:
        self._turn: Turn | None = None
        self._close = close
        graph = StateGraph(MessagesState)
        graph.add_node("answer", self._answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        self._graph: Any = graph.compile(checkpointer=saver)

    async def start(self, turns: Sequence[Turn]) -> str:
        thread_id = uuid.uuid4().hex
        history = [message for turn in turns for message in (HumanMessage(turn.question), *_replies(turn))]
        await self._graph.aupdate_state(_config(thread_id), {"messages": history}, as_node="answer")
        return thread_id

    async def append(self, thread_id: str, turn: Turn) -> None:
        self._turn = turn
        await self._graph.ainvoke({"messages": [HumanMessage(turn.question)]}, _config(thread_id))

    async def last_turns(self, thread_id: str, count: int) -> list[AnyMessage]:
        state = await self._graph.aget_state(_config(thread_id))
        messages: list[AnyMessage] = state.values["messages"]
        return messages[-count * MESSAGES_PER_TURN :]

    async def close(self) -> None:
        await self._close()

    async def _answer(self, state: MessagesState) -> dict[str, list[AnyMessage]]:
        assert self._turn is not None
        return {"messages": _replies(self._turn)}


async def sqlite(path: Path) -> Graph:
    stack = AsyncExitStack()
    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(path)))
    return Graph(saver, stack.aclose)


async def postgres(dsn: str) -> Graph:
    stack = AsyncExitStack()
    saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(dsn))
    await saver.setup()
    return Graph(saver, stack.aclose)


def _config(thread_id: str) -> dict[str, dict[str, str]]:
    return {"configurable": {"thread_id": thread_id}}


def _replies(turn: Turn) -> list[AnyMessage]:
    call = {"id": turn.call_id, "name": "web_search", "args": turn.tool_input, "type": "tool_call"}
    return [
        AIMessage("", tool_calls=[call]),
        ToolMessage(json.dumps(turn.tool_output), tool_call_id=turn.call_id),
        AIMessage(turn.answer),
    ]

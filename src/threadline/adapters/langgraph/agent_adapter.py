"""A compiled LangGraph graph as an agent here.

Each turn is one streamed run of the graph, with the conversation as its `messages`. The graph has no checkpointer: the
thread is its memory. `ThreadlineSaver` is for the opposite case, a program that runs graphs and stores them here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from langchain_core.exceptions import LangChainException
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.errors import GraphRecursionError, InvalidUpdateError
from langgraph.pregel import Pregel

from threadline.adapters.framework_agent import Framework, Handover, run_framework
from threadline.adapters.langchain_messages import to_langchain
from threadline.adapters.langgraph.run_events import RunEvents
from threadline.agents.limits import RunLimits
from threadline.core.errors import InvalidInput
from threadline.core.events import Event
from threadline.core.prompts import Prompt
from threadline.ports import AgentServices

_FRAMEWORK = Framework("LangGraph", (GraphRecursionError, InvalidUpdateError, LangChainException))


def agent(
    given: Any,
    *,
    messages: str = "messages",
    config: RunnableConfig | None = None,
    limits: RunLimits | None = None,
    **options: Any,
) -> LangGraphAgent:
    """`messages` is the key of the state that holds the conversation; `options` are those of `astream`, such as
    `context`."""
    return LangGraphAgent(given, messages=messages, config=config, limits=limits, **options)


class LangGraphAgent:
    """A model that the request or the thread chose is in the run's configuration: `configurable["model"]`."""

    def __init__(
        self,
        given: Any,
        *,
        messages: str = "messages",
        config: RunnableConfig | None = None,
        limits: RunLimits | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(given, Pregel):
            raise InvalidInput(f"a graph must be compiled before it can be an agent, got {type(given).__name__}")
        if given.checkpointer:
            raise InvalidInput("graph must be compiled without a checkpointer, got one: the thread is its memory")
        if messages not in given.channels:
            raise InvalidInput(
                f"the graph's state must have the key {messages!r} for the conversation: give `messages`"
            )
        self._graph = given
        self._key = messages
        self._config: RunnableConfig = config or {}
        self._limits = limits
        self._options = options

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        return run_framework(_FRAMEWORK, self._reply, prompt, services, self._limits)

    async def close(self) -> None:
        """Nothing to close: the graph belongs to its program."""

    async def _reply(self, handover: Handover, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        chosen: RunnableConfig = {"configurable": {"model": prompt.model}} if prompt.model else {}
        events = RunEvents()
        stream = self._graph.astream(
            {self._key: _to_messages(handover)},
            merge_configs(self._config, chosen),
            stream_mode=["messages", "updates", "custom"],
            subgraphs=True,
            **self._options,
        )
        async with aclosing(stream) as items:
            async for _, mode, data in items:
                for event in events.read(mode, data):
                    yield event
        for event in events.flush():
            yield event


def _to_messages(handover: Handover) -> list[BaseMessage]:
    system = [SystemMessage(handover.system)] if handover.system else []
    said = [each for message in handover.messages for each in to_langchain(message.role, message.parts)]
    return [*system, *said]

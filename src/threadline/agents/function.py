"""Any Python function as an agent: it gets the prompt and returns or yields text or events.

An async generator streams; an async or plain function returns the whole reply, the plain one runs in its own thread. A
first parameter annotated `str` gets the text of the request instead of the prompt; a second parameter gets the
AgentServices.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from threadline.agents.framework_objects import adapt
from threadline.agents.function_tools import FunctionTools
from threadline.agents.limits import RunLimits
from threadline.agents.reply_builder import limit_events
from threadline.agents.tool_execution import ToolFailed, run_bounded
from threadline.agents.tools import Tool, ToolSource
from threadline.core.errors import AgentFailed, InvalidInput
from threadline.core.events import Event, Status, TextDelta
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.ports import Agent, AgentServices


def as_agent(given: Any) -> Agent:
    """An Agent unchanged, or one for a function or for an agent of a framework. InvalidInput for anything else."""
    # First, because agents of some frameworks have a `run` of another signature.
    if (adapted := adapt(given)) is not None:
        return adapted
    if hasattr(given, "run"):
        # The protocol is structural, so a user's class need not inherit from it; its signature is not checked.
        return cast("Agent", given)
    if callable(given):
        return FunctionAgent(given)
    raise InvalidInput(f"an agent must be a function or an object with a `run` method, got a {type(given).__name__}")


class FunctionAgent:
    """`tools` and those of `sources` are what the function may call, with `await services.call_tool(name, …)`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        limits: RunLimits | None = None,
        tools: Sequence[Tool] = (),
        sources: Sequence[ToolSource] = (),
    ) -> None:
        if inspect.isgeneratorfunction(function):
            raise InvalidInput(f"{_name(function)} must be an async generator to stream, got a plain generator")
        self._function = function
        self._limits = limits or RunLimits()
        self._tools, self._sources = tuple(tools), tuple(sources)
        parameters = _positional(function)
        if not 1 <= len(parameters) <= 2:
            raise InvalidInput(
                f"{_name(function)} must take the prompt and optionally the services, got {len(parameters)} parameters"
            )
        self._wants_text = parameters[0].annotation in (str, "str")
        self._wants_services = len(parameters) == 2

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        events = self._with_tools if self._tools or self._sources else self._events
        return limit_events(events(prompt, services), prompt, self._limits)

    async def _with_tools(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        tools = list(self._tools)
        for source in self._sources:
            offered = await source.offer()
            tools += offered.tools
            for warning in offered.warnings:
                yield Status(warning)
        named = {tool.name: tool for tool in reversed(tools)}
        calls = FunctionTools(named, services, self._limits, prompt.turn_id)
        async for event in calls.merge(self._events(prompt, services._replace(call_tool=calls.call))):
            yield event

    async def _events(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        arguments: list[Any] = [_request_text(prompt) if self._wants_text else prompt]
        if self._wants_services:
            arguments.append(services)
        if inspect.isasyncgenfunction(self._function):
            async with aclosing(self._function(*arguments)) as items:
                async for item in items:
                    yield self._to_event(item)
        elif inspect.iscoroutinefunction(self._function):
            yield self._to_event(await self._function(*arguments))
        else:
            try:
                yield self._to_event(await run_bounded(partial(self._function, *arguments), self._limits.seconds))
            except ToolFailed as exc:
                raise AgentFailed(str(exc)) from exc

    def _to_event(self, item: Any) -> Event:
        if isinstance(item, str):
            return TextDelta(item)
        if isinstance(item, Event):
            return item
        raise AgentFailed(f"{_name(self._function)} must return text or events, got {type(item).__name__}")


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"signature of {_name(function)} cannot be read: wrap it in a Python function") from exc
    return [
        parameter
        for parameter in parameters
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is inspect.Parameter.empty
    ]


def _request_text(prompt: Prompt) -> str:
    texts = [plain_text(message.parts) for message in prompt.messages if message.role == "user"]
    return texts[-1] if texts else ""

"""Any Python function as an agent: it is given the prompt, and says text or events.

An async generator streams; an async or a plain function answers at once, the plain one in a thread of its own. A first
parameter of type `str` gets the words of the request instead of the prompt; a second parameter gets the services.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from threadline.agents.limits import Limits
from threadline.agents.outputs import ToolFailed
from threadline.agents.replies import bounded
from threadline.agents.tool_execution import run_bounded
from threadline.core.errors import AgentFailed, InvalidInput
from threadline.core.events import Event, TextDelta
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.ports import Agent, AgentServices


def as_agent(given: Any) -> Agent:
    """The agent that was given, or one made of the function that was. InvalidInput for anything else."""
    if hasattr(given, "run"):
        return cast("Agent", given)
    if callable(given):
        return FunctionAgent(given)
    raise InvalidInput(f"an agent must be a function or an object with a `run` method, got a {type(given).__name__}")


class FunctionAgent:
    def __init__(self, function: Callable[..., Any], *, limits: Limits | None = None) -> None:
        if inspect.isgeneratorfunction(function):
            raise InvalidInput(f"{_name(function)} is a plain generator; make it async to stream")
        self._function = function
        self._limits = limits or Limits()
        parameters = _positional(function)
        if not 1 <= len(parameters) <= 2:
            raise InvalidInput(f"{_name(function)} takes the prompt, and the services if it wants it")
        self._wants_text = parameters[0].annotation in (str, "str")
        self._wants_desk = len(parameters) == 2

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        return bounded(self._say(prompt, services), prompt, self._limits)

    async def _say(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        given: list[Any] = [_request(prompt) if self._wants_text else prompt]
        if self._wants_desk:
            given.append(services)
        if inspect.isasyncgenfunction(self._function):
            async with aclosing(self._function(*given)) as said:
                async for each in said:
                    yield self._event(each)
        elif inspect.iscoroutinefunction(self._function):
            yield self._event(await self._function(*given))
        else:
            try:
                yield self._event(await run_bounded(partial(self._function, *given), self._limits.seconds))
            except ToolFailed as exc:
                raise AgentFailed(str(exc)) from exc

    def _event(self, said: Any) -> Event:
        if isinstance(said, str):
            return TextDelta(said)
        if isinstance(said, Event):
            return said
        raise AgentFailed(f"{_name(self._function)} gave a {type(said).__name__}; an agent gives text or events")


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"{_name(function)}: its signature cannot be read") from exc
    return [
        parameter
        for parameter in parameters
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is inspect.Parameter.empty
    ]


def _request(prompt: Prompt) -> str:
    said = [plain_text(message.parts) for message in prompt.messages if message.role == "user"]
    return said[-1] if said else ""

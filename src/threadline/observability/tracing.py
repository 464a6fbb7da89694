"""Tracing: spans for an agent's run, built from its events, with the names of OpenTelemetry's conventions.

One span for the run (`invoke_agent`), with a child for each round of the model (`chat`) and each tool call
(`execute_tool`). The wrapper is used only if tracing is enabled, so it costs nothing otherwise, and it works for every
agent. Message text is left out unless the settings include it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, cast

import msgspec

from threadline.core import events
from threadline.core.events import Event
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.ports import Agent, AgentServices, Span, Tracer, WritingAgent

current_request_span: ContextVar[Span | None] = ContextVar("current_request_span", default=None)
"""The span of the current request: the parent of the turns it starts."""

_OWN = "threadline"
_OPERATION = "gen_ai.operation.name"
_PROVIDER = "gen_ai.provider.name"


class TracedAgent:
    """`provider` is the agent's provider, such as `openai` or `anthropic`."""

    def __init__(self, agent: Agent, tracer: Tracer, *, provider: str = _OWN, content: bool = False) -> None:
        self._agent = agent
        self._tracer = tracer
        self._provider = provider
        self._content = content

    @property
    def write(self) -> Callable[[Prompt], AsyncIterator[Event]]:
        """Only if the agent can write (see `WritingAgent`): otherwise this, too, is an attribute that is missing."""
        # A cast, because an agent without `write` must raise AttributeError here.
        return cast("WritingAgent", self._agent).write

    async def close(self) -> None:
        if (close := getattr(self._agent, "close", None)) is not None:
            await close()

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        trace = _Trace(self._tracer, prompt, self._provider, self._content)
        failed: str | None = "cancelled"
        try:
            # The port promises only an AsyncIterator; all agents here return generators, which have `aclose`.
            async with aclosing(self._agent.run(prompt, services)) as reply:  # type: ignore[type-var]
                async for event in reply:
                    trace.record(event)
                    yield event
            failed = None
        except Exception as exc:
            failed = type(exc).__name__
            raise
        finally:
            trace.end(failed)


class _Trace:
    """The spans of one run."""

    def __init__(self, tracer: Tracer, prompt: Prompt, provider: str, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._model = prompt.model
        self._common = _without_none({_PROVIDER: provider, "gen_ai.request.model": prompt.model})
        agent = prompt.agent_id or _OWN
        self._run = tracer.span(
            f"invoke_agent {agent}",
            _without_none(
                {
                    _OPERATION: "invoke_agent",
                    **self._common,
                    "gen_ai.agent.id": agent,
                    "gen_ai.agent.name": agent,
                    "gen_ai.conversation.id": prompt.thread_id,
                    "threadline.turn.id": prompt.turn_id,
                }
            ),
            parent=current_request_span.get(),
        )
        if content:
            self._run.set("gen_ai.input.messages", _messages(prompt))
        self._round: Span | None = None
        self._tools: dict[str, Span] = {}
        self._usage: dict[str, int] = {}
        self._text: list[str] = []
        self._failure: str | None = None

    def record(self, event: Event) -> None:
        match event:
            case events.StepStart():
                self._end_round()
                name = "chat" if self._model is None else f"chat {self._model}"
                self._round = self._tracer.span(
                    name, {_OPERATION: "chat", **self._common}, parent=self._run, kind="client"
                )
            case events.Usage():
                self._add_usage(event)
            case events.ToolCall():
                self._end_round()
                self._start_tool(event)
            case events.ToolResult() if not event.preliminary:
                self._end_tool(event.call_id, None, event.output)
            case events.ToolError():
                self._end_tool(event.call_id, "tool_error", event.error)
            case events.ToolDenied():
                self._end_tool(event.call_id, "denied", None)
            case events.TextDelta():
                self._text += [event.text] if self._content else []
            case events.Finish():
                self._run.set("gen_ai.response.finish_reasons", (event.reason,))
            case events.Failure():
                self._failure = "agent_failed"

    def end(self, failed: str | None) -> None:
        for call_id in list(self._tools):
            self._end_tool(call_id, failed or "unanswered", None)
        self._end_round(failed)
        for name, tokens in self._usage.items():
            self._run.set(name, tokens)
        if self._content:
            message = {"role": "assistant", "parts": [{"type": "text", "content": "".join(self._text)}]}
            self._run.set("gen_ai.output.messages", msgspec.json.encode([message]).decode())
        self._run.end(failed or self._failure)

    def _add_usage(self, usage: events.Usage) -> None:
        used = {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        }
        for name, tokens in used.items():
            self._usage[name] = self._usage.get(name, 0) + tokens
            if self._round is not None:
                self._round.set(name, tokens)

    def _end_round(self, failed: str | None = None) -> None:
        if self._round is not None:
            self._round.end(failed)
            self._round = None

    def _start_tool(self, call: events.ToolCall) -> None:
        about = {_OPERATION: "execute_tool", "gen_ai.tool.name": call.name, "gen_ai.tool.type": "function"}
        span = self._tracer.span(
            f"execute_tool {call.name}", {**about, "gen_ai.tool.call.id": call.call_id}, parent=self._run
        )
        if self._content:
            span.set("gen_ai.tool.call.arguments", msgspec.json.encode(call.input).decode())
        self._tools[call.call_id] = span

    def _end_tool(self, call_id: str, failed: str | None, output: Any) -> None:
        span = self._tools.pop(call_id, None)
        if span is not None:
            if self._content and output is not None:
                span.set("gen_ai.tool.call.result", msgspec.json.encode(output).decode())
            span.end(failed)


def _without_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _messages(prompt: Prompt) -> str:
    said = [
        {"role": each.role, "parts": [{"type": "text", "content": plain_text(each.parts)}]} for each in prompt.messages
    ]
    return msgspec.json.encode(said).decode()

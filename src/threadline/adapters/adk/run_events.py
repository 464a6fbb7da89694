"""The stream of an ADK run as events."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from threadline.adapters.adk.prompt_events import CONFIRMATION
from threadline.adapters.framework_agent import read_input, read_output
from threadline.core import events
from threadline.core.errors import AgentFailed
from threadline.core.events import ReasoningDelta, Source, StepStart, TextDelta, ToolCall, ToolError, ToolResult, Usage

_UNFINISHED = "the tool runs on after the reply, so its result does not reach this thread"


class RunEvents:
    """`known` are calls that have been reported already: those of the reply that a run continues."""

    def __init__(self, known: frozenset[str]) -> None:
        self._called = set(known)
        self._answered: set[str] = set()
        self._has_streamed = False
        self._begins = True
        self._error: str | None = None
        self.questions: dict[str, ToolCall] = {}
        """Calls that wait for approval, by the id of ADK's question."""

    def read(self, event: Any) -> Iterator[events.Event]:
        if event.error_code or event.error_message:
            # An exception is reported too, before it is raised.
            self._error = str(event.error_message or event.error_code)
            return
        parts = event.content.parts if event.content and event.content.parts else []
        for part in parts:
            if part.function_call:
                if not event.partial:
                    yield from self._call(part.function_call)
            elif part.function_response:
                yield from self._response(part.function_response, event.actions.requested_tool_confirmations or {})
            elif event.partial or not self._has_streamed:
                yield from self._said(part)
        if event.partial:
            self._has_streamed = True
            return
        self._has_streamed = False
        # A response of the model ends; what follows is the next one.
        self._begins = True
        yield from _sources(event.grounding_metadata)
        if event.usage_metadata:
            yield _usage(event.usage_metadata)

    def _begin(self) -> Iterator[events.Event]:
        if self._begins:
            self._begins = False
            yield StepStart()

    def _said(self, part: Any) -> Iterator[events.Event]:
        yield from self._begin()
        if part.text:
            yield ReasoningDelta(part.text) if part.thought else TextDelta(part.text)
        elif part.inline_data and part.inline_data.data:
            media = part.inline_data.mime_type or "application/octet-stream"
            yield events.File(media, f"data:{media};base64,{base64.b64encode(part.inline_data.data).decode()}")

    def _call(self, call: Any) -> Iterator[events.Event]:
        if call.name == CONFIRMATION:
            original = (call.args or {}).get("originalFunctionCall") or {}
            given = ToolCall(str(original.get("id")), str(original.get("name")), read_input(original.get("args")))
            self.questions[str(call.id)] = given
        elif call.id not in self._called:
            yield from self._begin()
            self._called.add(call.id)
            yield ToolCall(call.id, call.name, read_input(call.args))

    def _response(self, response: Any, questioned: Any) -> Iterator[events.Event]:
        # The result of a call that waits for approval says only that it waits.
        if response.id not in self._called or response.id in self._answered or response.id in questioned:
            return
        self._answered.add(response.id)
        given = read_output(response.response)
        match given:
            case {"error": str(error), **others} if not others:
                yield ToolError(response.id, error)
            case {"result": result, **others} if not others:
                yield ToolResult(response.id, result)
            case _:
                yield ToolResult(response.id, given)

    def end(self) -> Iterator[events.Event]:
        """A result for every call: an open one would wait for ever. AgentFailed if the run reported an error."""
        if self._error is not None:
            raise AgentFailed(f"the Google ADK agent failed: {self._error}")
        for call_id in sorted(self._called - self._answered):
            yield ToolError(call_id, _UNFINISHED)


def _sources(grounding: Any) -> Iterator[events.Event]:
    for chunk in (grounding.grounding_chunks if grounding else None) or []:
        if chunk.web and chunk.web.uri:
            yield Source(chunk.web.uri, chunk.web.uri, chunk.web.title)


def _usage(usage: Any) -> Usage:
    thought = usage.thoughts_token_count or 0
    said = (usage.candidates_token_count or 0) + thought
    return Usage(usage.prompt_token_count or 0, said, usage.cached_content_token_count or 0, thought)

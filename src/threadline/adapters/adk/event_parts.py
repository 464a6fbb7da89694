"""Events of ADK as parts of Threadline's messages, and messages that others wrote as events."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from google.adk.events.event import Event
from google.genai.types import Content, FunctionResponse
from google.genai.types import Part as ContentPart

from threadline.adapters.adk.prompt_events import agent_events, user_parts
from threadline.adapters.shown_parts import fit_parts
from threadline.core.files import data_url
from threadline.core.messages import Message, Role
from threadline.core.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart, tool_part
from threadline.core.prompts import PromptMessage
from threadline.core.repair import repair
from threadline.core.sanitize import sanitize_json, sanitize_text

USER = "user"


def shown_role(event: Event) -> Role:
    """A message of the user must say something; an event of theirs that only changes state is the assistant's."""
    return "user" if event.author == USER and any(_plain_parts(event)) else "assistant"


def shown_parts(event: Event, earlier: Iterable[Event]) -> tuple[Part, ...]:
    """`earlier` are the session's events: a response names its call only by id."""
    if shown_role(event) == "user":
        return fit_parts(list(_plain_parts(event)))
    parts: list[Part] = []
    for part in _content(event):
        call, response = part.function_call, part.function_response
        if call is not None:
            parts.append(tool_part(call.name or "tool", call.id or "", sanitize_json(call.args or {}).value))
        elif response is not None:
            parts.append(_result(response, earlier))
        else:
            parts.extend(_plain_part(part))
    return fit_parts(parts)


def _content(event: Event) -> list[ContentPart]:
    return list(event.content.parts or ()) if event.content is not None else []


def _plain_parts(event: Event) -> Iterator[Part]:
    for part in _content(event):
        yield from _plain_part(part)


def _plain_part(part: ContentPart) -> Iterator[Part]:
    if part.text:
        text = sanitize_text(part.text)
        yield ReasoningPart(text) if part.thought else TextPart(text)
    elif part.inline_data is not None and part.inline_data.data is not None:
        media = part.inline_data.mime_type or "application/octet-stream"
        yield FilePart(media, data_url(media, base64.b64encode(part.inline_data.data).decode()))
    elif part.file_data is not None and part.file_data.file_uri:
        yield FilePart(part.file_data.mime_type or "application/octet-stream", part.file_data.file_uri)
    elif part.executable_code is not None:
        yield TextPart(f"```\n{sanitize_text(part.executable_code.code or '')}\n```")
    elif part.code_execution_result is not None:
        yield TextPart(sanitize_text(part.code_execution_result.output or ""))


def _result(response: FunctionResponse, earlier: Iterable[Event]) -> ToolPart:
    call_id = response.id or ""
    given: Any = {}
    for event in reversed(list(earlier)):
        for part in _content(event):
            if part.function_call is not None and call_id and part.function_call.id == call_id:
                given = part.function_call.args or {}
                break
    output = sanitize_json(response.response or {}).value
    return tool_part(response.name or "tool", call_id, sanitize_json(given).value, output=output)


def to_events(message: Message, agent_name: str) -> list[Event]:
    """A message that was not written by ADK."""
    if message.role == "user":
        content = Content(role="user", parts=user_parts(message.parts))
        events = [Event(author=USER, content=content)]
    else:
        (repaired,) = repair([PromptMessage("assistant", message.parts)]) or (PromptMessage("assistant", ()),)
        events = list(agent_events(repaired.parts, agent_name))
    for number, event in enumerate(events):
        event.id = f"{message.id}-{number}"
        event.invocation_id = message.turn_id or message.id
        event.timestamp = message.created_us / 1_000_000
    return events

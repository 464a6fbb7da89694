"""An agent behind HTTP: it receives the dispatch payload and replies with JSON or with server-sent events.

A JSON reply is a text, an object with the text under one of the usual names, `parts` as in a UI message, or `messages`
in the format of OpenAI's chat API. A stream contains Threadline's events, the AI SDK's chunks, OpenAI's chunks, or
objects with a piece of text. Anything else (progress, heartbeats, unknown kinds) is ignored. The agent runs its own
tools: it reports calls and results. The turn's id is sent as the idempotency key, so that the agent can recognise a
repeated request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from threadline.agents.limits import RunLimits
from threadline.agents.reply_builder import limit_events
from threadline.core import events as core_events
from threadline.core import jsontext
from threadline.core.chat_messages import from_chat
from threadline.core.dispatch import payload
from threadline.core.errors import InvalidInput
from threadline.core.event_replay import replay_events
from threadline.core.events import (
    ApprovalRequest,
    Data,
    Event,
    File,
    FinalText,
    Finish,
    FinishReason,
    MessageMetadata,
    ReasoningDelta,
    Source,
    SourceDocument,
    TextDelta,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    Usage,
)
from threadline.core.parts import Part, decode
from threadline.core.prompts import Prompt
from threadline.net.addresses import Target, parse_url
from threadline.net.http_client import HttpReply, send_request
from threadline.net.retry import RequestFailed, Retrier, error_for_status, shorten
from threadline.net.sse import SseEvent, SseReader
from threadline.ports import AgentServices

LONGEST_JSON = 4_194_304
_TEXT_KEYS = ("content", "text", "reply", "response", "output", "message", "answer")
_DELTA_KEYS = ("delta", "text", "content", "token")
_FINISH_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "content_filter": "content-filter",
    "content-filter": "content-filter",
}


class RemoteAgent:
    """With `public_only`, internal addresses are refused: for agents that tenants configure."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        silence_seconds: float = 120.0,
        public_only: bool = False,
        limits: RunLimits | None = None,
        retrier: Retrier | None = None,
    ) -> None:
        self._target = parse_url(url)
        self._headers = {"accept": "text/event-stream, application/json", **(headers or {})}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._silence_seconds = silence_seconds
        self._public_only = public_only
        self._limits = limits
        self._retrier = retrier or Retrier()

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        body = jsontext.dump(payload(prompt), "dispatch payload")
        headers = dict(self._headers)
        if prompt.turn_id is not None:
            headers["idempotency-key"] = prompt.turn_id
        return limit_events(self._retrier.run(lambda: self._attempt(body, headers)), prompt, self._limits)

    async def close(self) -> None:
        """Nothing to close: each reply has its own connection."""

    def _attempt(self, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[Event, None]:
        return post_payload(
            self._target, body, headers, silence_seconds=self._silence_seconds, public_only=self._public_only
        )


async def post_payload(
    target: Target, body: bytes, headers: Mapping[str, str], *, silence_seconds: float, public_only: bool = False
) -> AsyncGenerator[Event, None]:
    """One attempt: posts the body and reads the reply, as JSON or as a stream. RequestFailed if that fails."""
    async with send_request(target, body, headers, silence_seconds=silence_seconds, public_only=public_only) as reply:
        if not 200 <= reply.status < 300:
            raise await _read_failure(reply)
        if "text/event-stream" not in reply.headers.get("content-type", ""):
            for event in parse_reply(await _read_body(reply, LONGEST_JSON)):
                yield event
            return
        is_empty = True
        async with aclosing(_read_stream(reply)) as events:
            async for event in events:
                is_empty = False
                yield event
        if is_empty:
            raise RequestFailed("the agent's stream contains no event that Threadline knows")


async def _read_stream(reply: HttpReply) -> AsyncGenerator[Event, None]:
    reader = SseReader()
    async for chunk in reply.body:
        for sse_event in reader.feed(chunk):
            events = parse_event(sse_event)
            if events is None:
                return
            for event in events:
                yield event


async def _read_body(reply: HttpReply, limit: int) -> bytes:
    raw = b""
    async for chunk in reply.body:
        raw += chunk
        if len(raw) > limit:
            raise RequestFailed(f"the agent's reply is longer than {limit:,} bytes")
    return raw


async def _read_failure(reply: HttpReply) -> RequestFailed:
    if 300 <= reply.status < 400:
        return RequestFailed(f"the agent replied with a redirect (HTTP {reply.status}), which is not followed")
    reason = parse_error(await _read_body(reply, LONGEST_JSON))
    return error_for_status("the agent", reply.status, reason, reply.headers)


def parse_reply(raw: bytes) -> list[Event]:
    """The events of a whole JSON reply. RequestFailed if it contains an error or no text."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RequestFailed("the agent's reply is not JSON") from exc
    if isinstance(body, dict) and body.get("error"):
        raise _agent_error(body["error"])
    usage = _parse_usage(body.get("usage")) if isinstance(body, dict) else None
    return [*_parse_content_of(body), *([usage] if usage else []), Finish()]


def _parse_content_of(body: Any) -> list[Event]:
    """The events of a reply's parts; of its text, if it has none that are known."""
    try:
        parts = _find_parts(body)
    except InvalidInput as exc:
        raise RequestFailed(f"the agent's reply is not valid: {exc}") from exc
    # There is no way to send a decision back to the agent, so a request for approval is dropped.
    events: list[Event] = [event for event in replay_events(parts) if not isinstance(event, ApprovalRequest)]
    if events:
        return events
    text = _find_text(body)
    if text is None:
        raise RequestFailed("the agent's reply contains no text")
    return [TextDelta(text)]


def _find_parts(body: Any) -> Sequence[Part]:
    match body:
        case {"parts": [{"type": _}, *_] as parts}:
            return decode(jsontext.dump(parts, "parts"))
        case {"messages": [*entries]} if all(isinstance(entry, dict) for entry in entries):
            # An agent may return the whole conversation: what follows the last question is its reply.
            asked = max((at for at, entry in enumerate(entries) if entry.get("role") == "user"), default=-1)
            said = [message.parts for message in from_chat(entries[asked + 1 :]) if message.role == "assistant"]
            return [part for parts in said for part in parts]
    return ()


def _find_text(value: Any) -> str | None:
    match value:
        case str():
            return value
        case {"choices": [{"message": inner}, *_]}:
            return _find_text(inner)
        case {"messages": [*_, {"role": "assistant", "content": inner}]}:
            return _find_text(inner)
        case dict():
            found = (_find_text(value[key]) for key in _TEXT_KEYS if key in value)
            return next((text for text in found if text is not None), None)
        case [{"type": "text"}, *_]:
            return "".join(
                item["text"] for item in value if isinstance(item, dict) and isinstance(item.get("text"), str)
            )
    return None


def parse_event(event: SseEvent) -> list[Event] | None:
    """The events in one server-sent event: [] if it is not understood, None for the end of the stream."""
    if event.data.strip() == "[DONE]":
        return None
    try:
        body = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return []
    if not isinstance(body, dict):
        return []
    kind = body.get("type", event.name)
    if body.get("error") or kind == "error":
        raise _agent_error(body.get("error") or body.get("errorText") or body.get("message"))
    if isinstance(body.get("choices"), list):
        return _parse_openai_chunk(body)
    return _parse_typed(str(kind), body, event.data.encode("utf-8", "replace"))


def _parse_typed(kind: str, body: dict[str, Any], raw: bytes) -> list[Event]:
    text = next((body[key] for key in _DELTA_KEYS if isinstance(body.get(key), str)), None)
    match kind:
        case "text-delta" | "message" | "delta" | "token" if text is not None:
            return [TextDelta(text)]
        case "reasoning-delta" if text is not None:
            return [ReasoningDelta(text)]
        case "final-text" | "final" if text is not None:
            return [FinalText(text)]
        case "usage":
            usage = _parse_usage(body)
            return [usage] if usage else []
    if content := _parse_tool_chunk(body) or _parse_content(kind, body):
        return content
    try:
        event = core_events.from_json(raw)
    except msgspec.DecodeError:
        return []
    # There is no way to send the decision back to the agent, so its request for approval is dropped.
    return [] if isinstance(event, ApprovalRequest) else [event]


def _parse_tool_chunk(body: dict[str, Any]) -> list[Event]:
    """The AI SDK's chunks for tools; Threadline's own events have other keys."""
    match body:
        case {"type": "tool-input-start", "toolCallId": str(call_id), "toolName": str(name)}:
            return [ToolInputStart(call_id, name)]
        case {"type": "tool-input-delta", "toolCallId": str(call_id), "inputTextDelta": str(text)}:
            return [ToolInputDelta(call_id, text)]
        case {"type": "tool-input-available", "toolCallId": str(call_id), "toolName": str(name)}:
            return [ToolCall(call_id, name, body.get("input"))]
        case {"type": "tool-input-error", "toolCallId": str(call_id), "toolName": str(name), "errorText": str(reason)}:
            return [ToolCall(call_id, name, body.get("input")), ToolError(call_id, reason)]
        case {"type": "tool-output-available", "toolCallId": str(call_id), "output": output}:
            return [ToolResult(call_id, output, body.get("preliminary") is True)]
        case {"type": "tool-output-error", "toolCallId": str(call_id), "errorText": str(reason)}:
            return [ToolError(call_id, reason)]
        case {"type": "tool-output-denied", "toolCallId": str(call_id)}:
            return [ToolDenied(call_id, None)]
    return []


def _parse_content(kind: str, body: dict[str, Any]) -> list[Event]:
    """The AI SDK's chunks for sources, files, data and metadata; Threadline's own events have other keys."""
    match body:
        case {"type": "source-url", "sourceId": str(source_id), "url": str(url)}:
            return [Source(source_id, url, _optional(body, "title"))]
        case {"type": "source-document", "sourceId": str(source_id), "mediaType": str(media_type), "title": str(title)}:
            return [SourceDocument(source_id, media_type, title, _optional(body, "filename"))]
        case {"type": "file", "mediaType": str(media_type), "url": str(url)}:
            return [File(media_type, url, _optional(body, "filename"))]
        case {"type": "message-metadata", "messageMetadata": dict(metadata)}:
            return [MessageMetadata(metadata)]
        case {"data": data} if kind.startswith("data-"):
            return [Data(kind.removeprefix("data-"), data, _optional(body, "id"), body.get("transient") is True)]
    return []


def _optional(body: dict[str, Any], key: str) -> str | None:
    found = body.get(key)
    return found if isinstance(found, str) else None


def _parse_openai_chunk(body: dict[str, Any]) -> list[Event]:
    events: list[Event] = []
    usage = _parse_usage(body.get("usage"))
    for choice in body["choices"]:
        match choice:
            case {"delta": {"content": str(text)}} if text:
                events.append(TextDelta(text))
            case {"delta": {"reasoning_content": str(text)}} if text:
                events.append(ReasoningDelta(text))
        if isinstance(choice, dict) and choice.get("finish_reason"):
            events.append(Finish(_FINISH_REASONS.get(str(choice["finish_reason"]), "stop")))
    return [*events, usage] if usage else events


def _parse_usage(value: Any) -> Usage | None:
    match value:
        case {"input_tokens": int(asked), "output_tokens": int(answered)}:
            return Usage(max(asked, 0), max(answered, 0))
        case {"prompt_tokens": int(asked), "completion_tokens": int(answered)}:
            return Usage(max(asked, 0), max(answered, 0))
    return None


def parse_error(raw: bytes) -> str:
    """The reason in the body of a failed request, under any of the usual names; "" if there is none."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    match body:
        case {"error": {"message": str(reason)}} | {"error": str(reason)} | {"detail": str(reason)}:
            return reason
        case {"message": str(reason)} | {"title": str(reason)}:
            return reason
    return ""


def _agent_error(error: Any) -> RequestFailed:
    reason = parse_error(msgspec.json.encode({"error": error}))
    return RequestFailed(f"the agent failed: {shorten(reason)}" if reason.strip() else "the agent failed")

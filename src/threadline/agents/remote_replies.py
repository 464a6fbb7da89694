"""What an agent behind HTTP may answer, read into events. Pure.

As JSON: a text, or an object with the text under one of the usual names. As server-sent events: the house's own events,
the AI SDK's chunks, OpenAI's chunks, or objects with a piece of text. Whatever else arrives (progress, heartbeats,
kinds of tomorrow) is passed over, because an agent must be free to say more than we understand.
"""

from __future__ import annotations

from typing import Any

import msgspec

from threadline.core import events as house
from threadline.core.events import ApprovalRequest, Event, FinalText, Finish, ReasoningDelta, TextDelta, Usage
from threadline.net.retry import Fault, short
from threadline.net.sse import SseEvent

_TEXT_KEYS = ("content", "text", "reply", "response", "output", "message", "answer")
_PIECE_KEYS = ("delta", "text", "content", "token")
_FINISHED = {"length": "length", "content_filter": "content-filter", "content-filter": "content-filter"}


def read_json(raw: bytes) -> list[Event]:
    """A whole reply. Fault if there is no text in it, or an error."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Fault("The agent's answer is not JSON.") from exc
    if isinstance(body, dict) and body.get("error"):
        raise _told(body["error"])
    text = _text(body)
    if text is None:
        raise Fault("The agent's answer holds no text.")
    usage = _usage(body.get("usage")) if isinstance(body, dict) else None
    return [TextDelta(text), *([usage] if usage else []), Finish()]


def _text(value: Any) -> str | None:
    match value:
        case str():
            return value
        case {"choices": [{"message": inner}, *_]}:
            return _text(inner)
        case {"messages": [*_, {"role": "assistant", "content": inner}]}:
            return _text(inner)
        case dict():
            found = (_text(value[key]) for key in _TEXT_KEYS if key in value)
            return next((text for text in found if text is not None), None)
        case [{"type": "text"}, *_]:
            return "".join(
                item["text"] for item in value if isinstance(item, dict) and isinstance(item.get("text"), str)
            )
    return None


def read_event(event: SseEvent) -> list[Event] | None:
    """What one server-sent event says; nothing for what is not understood; None for the end."""
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
        raise _told(body.get("error") or body.get("errorText") or body.get("message"))
    if isinstance(body.get("choices"), list):
        return _chunk(body)
    return _named(str(kind), body, event.data.encode("utf-8", "replace"))


def _named(kind: str, body: dict[str, Any], raw: bytes) -> list[Event]:
    piece = next((body[key] for key in _PIECE_KEYS if isinstance(body.get(key), str)), None)
    match kind:
        case "text-delta" | "message" | "delta" | "token" if piece is not None:
            return [TextDelta(piece)]
        case "reasoning-delta" if piece is not None:
            return [ReasoningDelta(piece)]
        case "final-text" | "final" if piece is not None:
            return [FinalText(piece)]
        case "usage":
            usage = _usage(body)
            return [usage] if usage else []
    try:
        event = house.from_json(raw)
    except msgspec.DecodeError:
        return []
    # Nobody here could pass an approval on to the agent.
    return [] if isinstance(event, ApprovalRequest) else [event]


def _chunk(body: dict[str, Any]) -> list[Event]:
    said: list[Event] = []
    usage = _usage(body.get("usage"))
    for choice in body["choices"]:
        match choice:
            case {"delta": {"content": str(text)}} if text:
                said.append(TextDelta(text))
            case {"delta": {"reasoning_content": str(text)}} if text:
                said.append(ReasoningDelta(text))
        if isinstance(choice, dict) and choice.get("finish_reason"):
            said.append(Finish(_FINISHED.get(str(choice["finish_reason"]), "stop")))  # type: ignore[arg-type]
    return [*said, usage] if usage else said


def _usage(given: Any) -> Usage | None:
    match given:
        case {"input_tokens": int(asked), "output_tokens": int(answered)}:
            return Usage(max(asked, 0), max(answered, 0))
        case {"prompt_tokens": int(asked), "completion_tokens": int(answered)}:
            return Usage(max(asked, 0), max(answered, 0))
    return None


def error_words(raw: bytes) -> str:
    """What a refusal says of itself, wherever it says it."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    match body:
        case {"error": {"message": str(words)}} | {"error": str(words)} | {"detail": str(words)}:
            return words
        case {"message": str(words)} | {"title": str(words)}:
            return words
    return ""


def _told(error: Any) -> Fault:
    words = error_words(msgspec.json.encode({"error": error}))
    return Fault(f"The agent failed: {short(words)}" if words.strip() else "The agent failed.")

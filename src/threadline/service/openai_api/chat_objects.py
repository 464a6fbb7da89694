"""Chat completions: a reply as one object, or events as chunks. Calls that the agent ran itself are not shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from threadline.core import events, jsontext
from threadline.core.events import Event
from threadline.core.parts import Part, ToolPart, plain_text
from threadline.core.prompts import wrap_input

DONE = b"data: [DONE]\n\n"
_FINISHES = {"length": "length", "content-filter": "content_filter"}


def chat_completion(
    reply_id: str,
    model: str,
    created_at: float,
    parts: Sequence[Part],
    usage: Mapping[str, Any],
    finish: str | None = None,
) -> dict[str, Any]:
    calls = [part for part in parts if isinstance(part, ToolPart) and part.state == "input-available"]
    message: dict[str, Any] = {"role": "assistant", "content": plain_text(parts) or None, "refusal": None}
    if calls:
        message["tool_calls"] = [_call(call.call_id, call.name, wrap_input(call).decode()) for call in calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "tool_calls" if calls else _FINISHES.get(finish or "", "stop"),
    }
    head = _head(reply_id, "chat.completion", model, created_at)
    return {**head, "choices": [choice], "usage": chat_usage(usage)}


def chat_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    given, made = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


class ChatWriter:
    def __init__(self, reply_id: str, model: str, created_at: float, client_tools: Collection[str]) -> None:
        self._head = _head(reply_id, "chat.completion.chunk", model, created_at)
        self._client_tools = client_tools
        self._calls = 0

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: Event) -> Iterator[bytes]:
        match event:
            case events.TextDelta():
                yield self._chunk({"content": event.text})
            case events.ToolCall() if event.name in self._client_tools:
                call = _call(event.call_id, event.name, jsontext.dump(event.input, "tool input").decode())
                yield self._chunk({"tool_calls": [{"index": self._calls, **call}]})
                self._calls += 1

    def end(self, error: str | None, usage: Mapping[str, Any] | None, finish: str | None = None) -> Iterator[bytes]:
        """`usage` is sent in a chunk of its own, for clients that asked for it."""
        if error is not None:
            fault = {"message": error, "type": "server_error", "param": None, "code": "agent_failed"}
            yield _frame({"error": fault})
            return
        yield self._chunk({}, "tool_calls" if self._calls else _FINISHES.get(finish or "", "stop"))
        if usage is not None:
            yield _frame({**self._head, "choices": [], "usage": chat_usage(usage)})
        yield DONE

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _frame({**self._head, "choices": [choice]})


def _head(reply_id: str, kind: str, model: str, created_at: float) -> dict[str, Any]:
    return {"id": f"chatcmpl-{reply_id}", "object": kind, "created": int(created_at), "model": model}


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _frame(value: dict[str, Any]) -> bytes:
    return b"data: " + jsontext.dump(value, "chunk") + b"\n\n"

"""A turn as a response object of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadline.core.client_tools import ClientTool
from threadline.core.turn_options import TurnOptions
from threadline.core.turns import TurnStatus
from threadline.service.openai_api.object_ids import RESPONSE

_STATUSES: Mapping[TurnStatus, str] = {
    "accepted": "queued",
    "running": "in_progress",
    "executed": "completed",
    "stopped": "cancelled",
}


_INCOMPLETE = {"length": "max_output_tokens", "content-filter": "content_filter"}


def _tool_choice(choice: str | None) -> str | dict[str, Any]:
    if choice is not None and choice.startswith("tool:"):
        return {"type": "function", "name": choice.removeprefix("tool:")}
    return choice or "auto"


def status_of(status: TurnStatus) -> str:
    return _STATUSES.get(status, "failed")


def response_object(
    turn_id: str,
    *,
    model: str,
    created_at: float,
    status: str,
    options: TurnOptions,
    client_tools: tuple[ClientTool, ...] = (),
    output: list[dict[str, Any]] | None = None,
    error: str | None = None,
    usage: Mapping[str, Any] | None = None,
    conversation: str | None = None,
    cut_short: str | None = None,
    store: bool = True,
) -> dict[str, Any]:
    """Every key that official clients read."""
    asked = options.model_options
    reason = _INCOMPLETE.get(cut_short or "") if status == "completed" else None
    failed = None if status != "failed" else {"code": "server_error", "message": error or "the agent failed"}
    return {
        "id": f"{RESPONSE}{turn_id}",
        "object": "response",
        "created_at": int(created_at),
        "status": status if reason is None else "incomplete",
        "background": options.background,
        "conversation": None if conversation is None else {"id": conversation},
        "error": failed,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": options.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": dict(options.metadata),
        "model": model,
        "output": output or [],
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None if options.previous is None else f"{RESPONSE}{options.previous}",
        "reasoning": {"effort": asked.reasoning_effort, "summary": None},
        "service_tier": "default",
        "store": store,
        "temperature": asked.temperature,
        "text": {"format": _text_format(options.response_format)},
        "tool_choice": _tool_choice(asked.tool_choice),
        "tools": [_tool(tool) for tool in client_tools],
        "top_p": asked.top_p,
        "truncation": "disabled",
        "usage": usage_object(usage) if usage else None,
    }


def usage_object(usage: Mapping[str, Any]) -> dict[str, Any]:
    given, made = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.get("cached_tokens", 0)},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens", 0)},
        "total_tokens": given + made,
    }


def chat_format(text_format: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`text.format` of the Responses API as `response_format` of the chat API; None for plain text."""
    if text_format is None or text_format.get("type") in (None, "text"):
        return None
    if text_format.get("type") != "json_schema":
        return dict(text_format)
    return {"type": "json_schema", "json_schema": {key: text_format[key] for key in text_format if key != "type"}}


def _text_format(response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    if response_format is None:
        return {"type": "text"}
    schema = response_format.get("json_schema")
    return {"type": "json_schema", **schema} if isinstance(schema, dict) else dict(response_format)


def _tool(tool: ClientTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": False,
    }

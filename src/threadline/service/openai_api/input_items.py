"""Input of a response: a text or a list of items, as messages to store and answers to open calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from threadline.core.approvals import Answer, ApprovalDecision, ToolOutput
from threadline.core.client_tools import ClientTool, check_client_tools
from threadline.core.errors import InvalidInput, LimitExceeded, quote
from threadline.core.messages import NewMessage
from threadline.core.prompts import PromptMessage
from threadline.core.response_items import ItemCalls, message_from_items, split_items

MAX_ITEMS = 1_000
"""Bounds the work of one request."""
INCLUDES = frozenset(
    (
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    )
)
"""What OpenAI's clients may ask for. What we have of it is always there."""
_SILENT = ("mcp_call", "mcp_list_tools", "mcp_approval_request")
"""Items that clients send back and that say nothing new."""


class InputItems(msgspec.Struct, frozen=True):
    """`messages` are said; `answers`, by call id or approval id, are outputs and decisions whose calls are not in the
    list. `last_output` says that the list ends with the output of a call that is."""

    messages: list[NewMessage]
    answers: dict[str, Answer]
    last_output: bool = False


def as_items(given: str | Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """InvalidInput if there is no item."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not given:
        raise InvalidInput("`input` must be a text or a list of items, got none")
    if len(given) > MAX_ITEMS:
        raise LimitExceeded("items per request", MAX_ITEMS, len(given))
    return list(given)


def check_include(given: Sequence[str] | None) -> None:
    """InvalidInput for what OpenAI's API does not know either."""
    for each in given or ():
        if each not in INCLUDES:
            raise InvalidInput(f"`include` must name what OpenAI's API knows, got {quote(each)}")


def read_items(items: Sequence[dict[str, Any]]) -> InputItems:
    """InvalidInput for an item that cannot be read. References must be resolved."""
    called = {item.get("call_id") for item in items if item.get("type") == "function_call"}
    said: list[dict[str, Any]] = []
    answers: dict[str, Answer] = {}
    for item in items:
        match item:
            case {"type": "function_call_output", "call_id": str(call_id), "output": output} if call_id not in called:
                answers[call_id] = ToolOutput(output)
            case {"type": "mcp_approval_response", "approval_request_id": str(asked), "approve": bool(approved)}:
                reason = item.get("reason")
                answers[asked] = ApprovalDecision(approved, reason if isinstance(reason, str) else None)
            case {"type": str(kind)} if kind in _SILENT:
                pass
            case _:
                said.append(_check_item(item))
    calls = ItemCalls(said)
    found = [message_from_items(group, calls) for group in split_items(said)]
    messages = [NewMessage(message.role, message.parts) for message in found if message.parts]
    return InputItems(messages, answers, bool(said) and said[-1].get("type") == "function_call_output")


def _check_item(item: dict[str, Any]) -> dict[str, Any]:
    match item:
        case {"type": "function_call", "call_id": str(), "name": str(), "arguments": str()}:
            return item
        case {"type": "function_call_output", "call_id": str(), "output": _} | {"type": "reasoning"}:
            return item
        case {"role": str()} if item.get("type") in (None, "message"):
            content = item.get("content")
            for part in content if isinstance(content, list) else ():
                _check_part(part)
            return item
    kind = quote(item.get("type"))
    raise InvalidInput(f"`input` has an item that cannot be read, of type {kind}: send messages, calls and outputs")


def _check_part(part: Any) -> None:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str()} | {"type": "refusal", "refusal": str()}:
            return
        case {"type": "input_image", "image_url": str()} | {"type": "input_file", "file_data": str()}:
            return
        case {"type": "input_file", "file_url": str()}:
            return
        case {"type": "input_image" | "input_file"}:
            raise InvalidInput("an image or a file must be given as a `data:` URL or a web address, not as a file id")
    raise InvalidInput("each part of `content` must be input_text, input_image, input_file or output_text")


def as_prompt(messages: Sequence[NewMessage]) -> list[PromptMessage]:
    assert all(isinstance(message.parts, tuple) for message in messages)
    return [PromptMessage(message.role, message.parts) for message in messages if isinstance(message.parts, tuple)]


def read_tools(tools: Sequence[dict[str, Any]] | None) -> tuple[ClientTool, ...]:
    """Function tools, which the caller runs, as either API writes them. InvalidInput for tools of other types."""
    return check_client_tools(tuple(_tool(tool) for tool in tools or ()))


def _tool(tool: dict[str, Any]) -> ClientTool:
    nested = tool.get("function")
    function: Mapping[str, Any] = nested if isinstance(nested, dict) else tool
    match function:
        case {"name": str(name)} if tool.get("type") == "function":
            schema, description = function.get("parameters"), function.get("description") or ""
            if schema is not None and not isinstance(schema, dict):
                raise InvalidInput(f"`parameters` of tool {quote(name)} must be an object")
            if not isinstance(description, str):
                raise InvalidInput(f"`description` of tool {quote(name)} must be a string")
            return ClientTool(name, description, {"type": "object", "properties": {}, **(schema or {})})
    raise InvalidInput(f"`tools` must be function tools, got {quote(tool.get('type'))}: agents have their own tools")

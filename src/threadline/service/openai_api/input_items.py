"""Input of a response: a text or a list of items, as messages of OpenAI's chat API, and answers to open calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from threadline.core import jsontext
from threadline.core.approvals import Answer, ApprovalDecision, ToolOutput
from threadline.core.chat_messages import from_chat
from threadline.core.client_tools import ClientTool, check_client_tools
from threadline.core.errors import InvalidInput, LimitExceeded, quote
from threadline.core.messages import NewMessage

MAX_ITEMS = 1_000
"""Bounds the work of one request."""
_SILENT = ("reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request")
"""Items that clients send back and that say nothing new."""


class InputItems(msgspec.Struct, frozen=True):
    """`messages` are in the format of the chat API; `answers` are by call id or approval id."""

    messages: list[dict[str, Any]]
    answers: dict[str, Answer]


def as_items(given: str | Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """InvalidInput if there is no item."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not given:
        raise InvalidInput("`input` must be a text or a list of items, got none")
    if len(given) > MAX_ITEMS:
        raise LimitExceeded("items per request", MAX_ITEMS, len(given))
    return list(given)


def read_items(items: Sequence[dict[str, Any]]) -> InputItems:
    found = InputItems([], {})
    for item in items:
        _read_item(item, found)
    return found


def _read_item(item: dict[str, Any], found: InputItems) -> None:
    match item:
        case {"type": "function_call", "call_id": str(call_id), "name": str(name), "arguments": str(arguments)}:
            call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            found.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        case {"type": "function_call_output", "call_id": str(call_id), "output": output}:
            found.answers[call_id] = ToolOutput(output)
            text = output if isinstance(output, str) else jsontext.dump(output, "output").decode()
            found.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        case {"type": "mcp_approval_response", "approval_request_id": str(asked), "approve": bool(approved)}:
            reason = item.get("reason")
            found.answers[asked] = ApprovalDecision(approved, reason if isinstance(reason, str) else None)
        case {"type": str(kind)} if kind in _SILENT:
            pass
        case {"role": str(role)} if item.get("type") in (None, "message"):
            found.messages.append({"role": role, "content": _content(item.get("content"))})
        case _:
            kind = quote(item.get("type"))
            raise InvalidInput(f"`input` has an item that cannot be read, of type {kind}: send messages and outputs")


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [_content_part(part) for part in content]


def _content_part(part: Any) -> Any:
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "input_file", "file_data": str(data)}:
            return {"type": "file", "file": {"file_data": data, "filename": part.get("filename") or "file"}}
        case {"type": "input_image" | "input_file"}:
            raise InvalidInput("an image or a file must be given as a `data:` URL or a web address, not as a file id")
        case {"type": "text" | "image_url" | "file" | "refusal"}:
            return part
    raise InvalidInput("each part of `content` must be input_text, input_image, input_file or output_text")


def to_messages(chat: Sequence[Mapping[str, Any]]) -> list[NewMessage]:
    """The conversation as messages to store. InvalidInput."""
    return [NewMessage(each.role, each.parts) for each in from_chat(chat)]


def read_tools(tools: Sequence[dict[str, Any]] | None) -> tuple[ClientTool, ...]:
    """Function tools, which the caller runs, as either API writes them. InvalidInput for tools of other types."""
    return check_client_tools(tuple(_tool(tool) for tool in tools or ()))


def _tool(tool: dict[str, Any]) -> ClientTool:
    nested = tool.get("function")
    function: dict[str, Any] = nested if isinstance(nested, dict) else tool
    match function:
        case {"name": str(name)} if tool.get("type") == "function":
            schema, description = function.get("parameters"), function.get("description") or ""
            if schema is not None and not isinstance(schema, dict):
                raise InvalidInput(f"`parameters` of tool {quote(name)} must be an object")
            if not isinstance(description, str):
                raise InvalidInput(f"`description` of tool {quote(name)} must be a string")
            return ClientTool(name, description, {"type": "object", "properties": {}, **(schema or {})})
    raise InvalidInput(f"`tools` must be function tools, got {quote(tool.get('type'))}: agents have their own tools")

"""Messages and their parts as items of OpenAI's Responses API.

A call of a tool that the caller runs is a `function_call`. A call that the agent ran itself is an `mcp_call`, the type
for tools of a server: a client does not try to run it. Item ids are made from the message's id and the part's number.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from threadline.core.messages import Message
from threadline.core.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart
from threadline.core.prompts import outcome_text, wrap_input
from threadline.service.openai_api.object_ids import ItemId, call_id_of

SERVER_LABEL = "agent"


def numbered_parts(parts: Iterable[Part], hidden: Collection[int] = ()) -> Iterator[tuple[int, Part]]:
    """The parts with their numbers in the stored message, which hidden parts keep."""
    return zip((number for number in itertools.count() if number not in hidden), parts, strict=False)


def reply_items(
    message_id: str,
    parts: Sequence[Part],
    client_tools: Collection[str],
    *,
    first: int = 0,
    hidden: Collection[int] = (),
) -> list[dict[str, Any]]:
    """The items of a reply from part `first` on, without outputs that the caller gave."""
    items: list[dict[str, Any]] = []
    for number, part in numbered_parts(parts, hidden):
        if number >= first and (item := reply_item(message_id, number, part, client_tools)) is not None:
            items.append(item)
    return items


def reply_item(message_id: str, number: int, part: Part, client_tools: Collection[str]) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return text_item(message_id, number, part.text)
        case ReasoningPart():
            return {**reasoning_item(message_id, number, part.text), **_encrypted(part)}
        case ToolPart(state="approval-requested") if part.approval is not None:
            return approval_item(part.approval.id, part.name, wrap_input(part).decode())
        case ToolPart():
            is_clients = part.name in client_tools or part.state == "input-available"
            make = function_item if is_clients else server_item
            item = make(message_id, number, part.call_id, part.name, wrap_input(part).decode())
            if is_clients:
                return item
            failed = part.state in ("output-error", "output-denied")
            text = outcome_text(part) if part.is_answered else None
            return {**item, "output": None if failed else text, "error": text if failed else None}
    return None


def text_item(message_id: str, number: int, text: str, status: str = "completed") -> dict[str, Any]:
    return {
        "id": str(ItemId("msg", message_id, number)),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [text_content(text)] if status == "completed" else [],
    }


def text_content(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_item(message_id: str, number: int, text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": str(ItemId("rs", message_id, number)), "type": "reasoning", "summary": summary}


def function_item(
    message_id: str, number: int, call_id: str, name: str, arguments: str, status: str = "completed"
) -> dict[str, Any]:
    return {
        "id": str(ItemId("fc", message_id, number)),
        "type": "function_call",
        "call_id": call_id_of(message_id, number, call_id),
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _encrypted(part: ReasoningPart) -> dict[str, Any]:
    """What a provider encrypted, for callers that send the reasoning back."""
    kept = (part.provider_metadata or {}).get("openai")
    encrypted = kept.get("reasoningEncryptedContent") if isinstance(kept, dict) else None
    return {"encrypted_content": encrypted} if encrypted else {}


def output_item(message_id: str, number: int, part: ToolPart) -> dict[str, Any]:
    """The output that a caller gave to a call."""
    return {
        "id": str(ItemId("fco", message_id, number)),
        "type": "function_call_output",
        "call_id": call_id_of(message_id, number, part.call_id),
        "output": outcome_text(part),
        "status": "completed",
    }


def server_item(message_id: str, number: int, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": str(ItemId("mcp", message_id, number)),
        "type": "mcp_call",
        "server_label": SERVER_LABEL,
        "name": name,
        "arguments": arguments,
        "output": None,
        "error": None,
    }


def approval_item(approval_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": approval_id,
        "type": "mcp_approval_request",
        "server_label": SERVER_LABEL,
        "name": name,
        "arguments": arguments,
    }


def message_items(message: Message, client_tools: Collection[str]) -> list[dict[str, Any]]:
    """The items of a stored message, with the outputs that a caller gave to its calls."""
    parts = message.parts
    if message.role != "assistant":
        content = [each for part in parts if (each := _input_content(part)) is not None]
        item_id = str(ItemId("msg", message.id, 0))
        item = {"id": item_id, "type": "message", "role": message.role, "status": "completed", "content": content}
        return [item] if content else []
    items: list[dict[str, Any]] = []
    for number, part in numbered_parts(parts, message.hidden):
        item_or_none = reply_item(message.id, number, part, client_tools)
        if item_or_none is None:
            continue
        items.append(item_or_none)
        if item_or_none["type"] == "function_call" and isinstance(part, ToolPart) and part.is_answered:
            items.append(output_item(message.id, number, part))
    return items


def _input_content(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case FilePart() if part.media_type.startswith("image/"):
            return {"type": "input_image", "image_url": part.url, "detail": "auto"}
        case FilePart():
            return {"type": "input_file", "file_data": part.url, "filename": part.filename or "file"}
    return None

"""Codec for the items of OpenAI's Responses API: a conversation to messages, and messages to items.

Everything that the assistant says and does between two messages of the user is one message: reasoning, texts, and calls
with their outputs in one tool part each. A call of a hosted tool (web search, code, files, MCP) is a tool part too. An
item without an equivalent becomes a data part. `to_items` repairs the prompt first, so that every call has an output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, quote
from threadline.core.files import data_url, is_web_url
from threadline.core.messages import Role
from threadline.core.parts import DataPart, FilePart, Part, ReasoningPart, SourceUrlPart, TextPart, ToolPart, tool_part
from threadline.core.prompts import (
    PromptMessage,
    file_note,
    outcome_text,
    split_rounds,
    text_with_file_notes,
    unwrap_input,
    wrap_input,
)
from threadline.core.repair import repair

FOREIGN_ITEM = "openai-item"
"""The name of the data part for an item, or a part of its content, without an equivalent."""
_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_OUTPUT = "_call_output"
_OUTCOMES = ("output", "outputs", "results", "result", "error")
_NOT_INPUT = frozenset(("id", "call_id", "type", "status", "name", "server_label", "namespace", *_OUTCOMES))

Item = Mapping[str, Any]


def split_items(items: Iterable[Item]) -> list[list[Item]]:
    """The items of each message: one of the user or of the system, or several of the assistant."""
    found: list[list[Item]] = []
    for item in items:
        if _role(item) == "assistant" and found and _role(found[-1][-1]) == "assistant":
            found[-1].append(item)
        else:
            found.append([item])
    return found


class ItemCalls:
    """The calls of a conversation by their ids: an output, which may come much later, names only the id."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._calls: dict[str, Item] = {}
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        call_id = item.get("call_id")
        if isinstance(call_id, str) and _kind(item).endswith("_call"):
            self._calls[call_id] = item

    def find(self, call_id: str) -> Item | None:
        return self._calls.get(call_id)


def message_from_items(items: Sequence[Item], calls: ItemCalls) -> PromptMessage:
    """The items of one message, as `split_items` gives them. An output whose call is in an earlier message comes with
    the call's name and input."""
    role = _role(items[0])
    if role != "assistant":
        return PromptMessage(role, tuple(_content_parts(items[0].get("content"))))
    outputs = {str(item["call_id"]): item for item in items if _kind(item).endswith(_OUTPUT) and "call_id" in item}
    called = {str(item.get("call_id")) for item in items if _kind(item).endswith("_call")}
    parts: list[Part] = []
    for item in items:
        parts.extend(_assistant_parts(item, outputs, called, calls))
    return PromptMessage("assistant", tuple(parts))


def _kind(item: Item) -> str:
    return str(item.get("type") or "message")


def _role(item: Item) -> Role:
    if _kind(item) != "message":
        return "assistant"
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise InvalidInput(f"an item must have a `type`, or a `role` of {', '.join(_ROLES)}, got {quote(item)}")
    return role


def _assistant_parts(item: Item, outputs: Mapping[str, Item], called: set[str], calls: ItemCalls) -> Iterator[Part]:
    kind = _kind(item)
    call_id = str(item.get("call_id") or item.get("id") or "")
    if kind == "message":
        yield from _content_parts(item.get("content"))
    elif kind == "reasoning":
        yield _reasoning(item)
    elif kind.endswith("_call") and call_id:
        yield _call(item, call_id, outputs.get(call_id, item))
        if kind == "image_generation_call" and isinstance(item.get("result"), str):
            yield FilePart("image/png", data_url("image/png", item["result"]))
    elif kind.endswith(_OUTPUT) and call_id:
        if call_id not in called:
            call = calls.find(call_id) or {"type": kind.removesuffix("_output")}
            yield _call(call, call_id, item)
    else:
        yield DataPart(FOREIGN_ITEM, dict(item))


def _content_parts(content: Any) -> Iterator[Part]:
    match content:
        case None | "":
            return
        case str():
            yield TextPart(content)
            return
        case list() | tuple():
            for part in content:
                yield from _content_part(part)
            return
    raise InvalidInput(f"`content` must be a string or an array of parts, got {jsontext.type_of(content)}")


def _content_part(part: Any) -> Iterator[Part]:
    match part:
        case {"type": "input_text" | "output_text" | "text" | "summary_text", "text": str(text)}:
            yield TextPart(text)
            yield from _sources(part.get("annotations"))
        case {"type": "refusal", "refusal": str(text)}:
            yield TextPart(text)
        case {"type": "input_image", "image_url": str(url)}:
            yield FilePart(_declared(url) or "image/*", url)
        case {"type": "input_file", "file_data": str(url)} | {"type": "input_file", "file_url": str(url)}:
            yield FilePart(_declared(url) or "application/octet-stream", url, part.get("filename"))
        case Mapping():
            yield DataPart(FOREIGN_ITEM, dict(part))
        case _:
            raise InvalidInput(f"each part of `content` must be an object, got {jsontext.type_of(part)}")


def _declared(url: str) -> str | None:
    return url[5:].partition(",")[0].partition(";")[0] if url.startswith("data:") else None


def _sources(annotations: Any) -> Iterator[Part]:
    seen: set[str] = set()
    for each in annotations if isinstance(annotations, list | tuple) else ():
        match each:
            case {"type": "url_citation", "url": str(url)} if url not in seen:
                seen.add(url)
                yield SourceUrlPart(url, url, each.get("title"))


def _reasoning(item: Item) -> ReasoningPart:
    blocks = [*(item.get("summary") or ()), *(item.get("content") or ())]
    text = "\n\n".join(str(block["text"]) for block in blocks if isinstance(block, Mapping) and "text" in block)
    encrypted = item.get("encrypted_content")
    metadata = {"itemId": item.get("id"), "reasoningEncryptedContent": encrypted}
    kept = {key: value for key, value in metadata.items() if value}
    return ReasoningPart(text, {"openai": kept} if kept else None)


def _call(call: Item, call_id: str, answer: Item) -> ToolPart:
    kind = _kind(call)
    name = str(call.get("name") or kind.removesuffix("_call"))
    given = _input(call)
    outcome = next((answer[key] for key in _OUTCOMES if answer.get(key) is not None), None)
    if kind == "mcp_call" and answer.get("error"):
        return tool_part(name, call_id, given, error=str(answer["error"]))
    if outcome is not None and kind != "image_generation_call":
        return tool_part(name, call_id, given, output=outcome)
    if answer is not call or "call_id" not in call:
        # A hosted tool gives its results to the model alone.
        return tool_part(name, call_id, given, output={"status": answer.get("status") or "completed"})
    return tool_part(name, call_id, given)


def _input(call: Item) -> Any:
    if isinstance(call.get("arguments"), str):
        try:
            return unwrap_input(jsontext.parse(call["arguments"] or "{}", "arguments"))
        except InvalidInput:
            return call["arguments"]
    given = {key: value for key, value in call.items() if key not in _NOT_INPUT}
    # A single field, such as `action` or `input`, needs no name.
    return next(iter(given.values())) if len(given) == 1 else given


def to_items(messages: Iterable[PromptMessage]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in repair(messages):
        match message.role:
            case "system":
                found.append({"role": "system", "content": text_with_file_notes(message.parts)})
            case "user":
                found.append({"role": "user", "content": _user_content(message.parts)})
            case "assistant":
                for said, calls in split_rounds(message.parts):
                    found.extend(item for part in said if (item := _said(part)) is not None)
                    found.extend(_function_call(call) for call in calls)
                    found.extend(_function_output(call) for call in calls)
    return found


def _said(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"role": "assistant", "content": part.text}
        case ReasoningPart():
            return _reasoning_item(part)
        case FilePart():
            return {"role": "assistant", "content": file_note(part)}
        case DataPart(name="openai-item", data={"type": str()}):
            return dict(part.data)
    return None


def _reasoning_item(part: ReasoningPart) -> dict[str, Any] | None:
    """OpenAI accepts only reasoning that it can look up or decrypt."""
    match (part.provider_metadata or {}).get("openai"):
        case {"itemId": str(item_id), **more}:
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            item = {"id": item_id, "type": "reasoning", "summary": summary}
            encrypted = more.get("reasoningEncryptedContent")
            return {**item, "encrypted_content": encrypted} if encrypted else item
    return None


def _function_call(call: ToolPart) -> dict[str, Any]:
    arguments = wrap_input(call).decode()
    return {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": arguments}


def _function_output(call: ToolPart) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": outcome_text(call)}


def _user_content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [content for part in parts if (content := _input_part(part)) is not None]


def _input_part(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case FilePart() if part.media_type.startswith("image/"):
            return {"type": "input_image", "image_url": part.url, "detail": "auto"}
        case FilePart():
            place = "file_url" if is_web_url(part) else "file_data"
            return {"type": "input_file", place: part.url, "filename": part.filename or "file"}
        case DataPart(name="openai-item", data={"type": str()}):
            return dict(part.data)
    return None

"""Codec for Anthropic's content blocks: messages to blocks, and blocks to messages.

A tool part is a `tool_use` in the assistant's message and a `tool_result` at the start of the next user message.
`to_blocks` repairs the prompt first and makes roles alternate, starting with the user. `messages_from_blocks` accepts
anything a session file may contain: malformed tool input stays a string, and blocks without an equivalent (an unknown
type, a result without its call) become data parts, which are not sent to providers. Calls of Anthropic's own tools
become tool parts if they have a result, and are sent as calls of an ordinary tool.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from threadline.core import jsontext
from threadline.core.checks import check_choice
from threadline.core.errors import InvalidInput
from threadline.core.files import IMAGE_TYPES, data_url, embedded, is_web_url
from threadline.core.messages import ROLES, Role
from threadline.core.parts import DataPart, FilePart, Part, ReasoningPart, TextPart, ToolPart, plain_text
from threadline.core.prompts import (
    PromptMessage,
    append_round,
    file_note,
    join_same_role,
    outcome_text,
    say,
    split_rounds,
    text_with_file_notes,
    unwrap_input,
    wrap_input,
)
from threadline.core.repair import repair

Block: TypeAlias = dict[str, Any]
Content: TypeAlias = str | Sequence[Mapping[str, Any]]

OPENING = "(The assistant speaks first.)"
"""The text of a user message that is inserted if the assistant speaks first, because Anthropic requires one."""
FOREIGN_BLOCK = "anthropic-block"
"""The name of the data part for a block without an equivalent."""


class Blocks(NamedTuple):
    """System texts in order, and the messages, each `{"role": …, "content": …}`."""

    system: tuple[str, ...]
    messages: list[dict[str, Any]]


def to_blocks(messages: Iterable[PromptMessage]) -> Blocks:
    repaired = repair(messages)
    system = tuple(text_with_file_notes(message.parts) for message in repaired if message.role == "system")
    found: list[dict[str, Any]] = []
    for message in join_same_role(message for message in repaired if message.role != "system"):
        if message.role == "user":
            _append(found, "user", [block for part in message.parts for block in _user_block(part)])
        else:
            for other_parts, calls in split_rounds(message.parts):
                blocks = [block for part in other_parts for block in _assistant_block(part)]
                _append(found, "assistant", [*blocks, *(_tool_use(call) for call in calls)])
                _append(found, "user", [_tool_result(call) for call in calls])
    if found and found[0]["role"] == "assistant":
        found.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    return Blocks(system, found)


def _append(found: list[dict[str, Any]], role: Role, blocks: list[Block]) -> None:
    if not blocks:
        return
    if found and found[-1]["role"] == role:
        found[-1]["content"].extend(blocks)
    else:
        found.append({"role": role, "content": blocks})


def _user_block(part: Part) -> list[Block]:
    match part:
        case TextPart():
            return [{"type": "text", "text": part.text}]
        case FilePart():
            return [_file(part)]
    return []


def _assistant_block(part: Part) -> list[Block]:
    match part:
        case TextPart():
            return [{"type": "text", "text": part.text}]
        case ReasoningPart():
            return _thinking(part)
        case FilePart():
            return [{"type": "text", "text": file_note(part)}]
    return []


def _thinking(part: ReasoningPart) -> list[Block]:
    """Anthropic rejects reasoning that it did not sign, so only signed reasoning is sent."""
    signed = (part.provider_metadata or {}).get("anthropic")
    match signed:
        case {"redactedData": str(data)}:
            return [{"type": "redacted_thinking", "data": data}]
        case {"signature": str(signature)}:
            return [{"type": "thinking", "thinking": part.text, "signature": signature}]
    return []


def _file(part: FilePart) -> Block:
    found = embedded(part)
    title = {} if part.filename is None else {"title": part.filename}
    if found is not None and found.media_type == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": found.content.decode()}
        return {"type": "document", "source": source, **title}
    if found is not None:
        source = {"type": "base64", "media_type": found.media_type, "data": found.base64}
        if found.media_type in IMAGE_TYPES:
            return {"type": "image", "source": source}
        return {"type": "document", "source": source, **title}
    if is_web_url(part) and part.media_type.startswith("image/"):
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    if is_web_url(part) and part.media_type == "application/pdf":
        return {"type": "document", "source": {"type": "url", "url": part.url}, **title}
    return {"type": "text", "text": file_note(part)}


def _tool_use(call: ToolPart) -> Block:
    given = jsontext.parse(wrap_input(call), "tool input")
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": given}


def _tool_result(call: ToolPart) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": call.call_id}
    if call.state != "output-available":
        return {**result, "content": outcome_text(call), "is_error": True}
    value = call.output_value()
    if value is None:
        return result
    blocks = _content_blocks(value)
    return {**result, "content": outcome_text(call) if blocks is None else blocks}


def _content_blocks(value: Any) -> list[Block] | None:
    """A tool's output that already consists of content blocks (text and images); None for any other, sent as JSON."""
    if not isinstance(value, list) or not value:
        return None
    blocks: list[Block] = []
    for item in value:
        match item:
            case {"type": "text", "text": str(text), **rest} if text.strip() and not rest:
                blocks.append(item)
            case {"type": "image"} if (part := _file_part(item)) is not None and _file(part)["type"] == "image":
                blocks.append(_file(part))
            case _:
                return None
    return blocks


def from_blocks(content: Content) -> tuple[Part, ...]:
    """The parts of one message. A tool result in it belongs to the call in it."""
    blocks = _as_list(content)
    return _parts(blocks, _Results([blocks]))


def messages_from_blocks(messages: Iterable[Mapping[str, Any]], *, system: Content = "") -> tuple[PromptMessage, ...]:
    """A whole conversation. The rounds of an assistant become one message, with results in their calls."""
    contents = [(_role(message), _as_list(message.get("content", ""))) for message in messages]
    results = _Results([blocks for _, blocks in contents])
    found = [say("system", text) for text in _system_texts(system)]
    continues = False
    for role, blocks in contents:
        parts = _parts(blocks, results)
        if not parts:
            continues = role == "user" and bool(found) and found[-1].role == "assistant"
            continue
        if continues and role == "assistant":
            found[-1] = PromptMessage("assistant", append_round(found[-1].parts, parts))
        else:
            found.append(PromptMessage(role, parts))
        continues = False
    return tuple(found)


class _Results:
    """Every result by the id of its call (the first, if there are several), and the ids of all calls."""

    def __init__(self, contents: Iterable[Sequence[Mapping[str, Any]]]) -> None:
        self.by_call: dict[str, Mapping[str, Any]] = {}
        self.call_ids: set[str] = set()
        for block in (block for blocks in contents for block in blocks):
            match block:
                case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use", "id": str(call_id)}:
                    self.call_ids.add(call_id)
                case {"type": str(kind), "tool_use_id": str(call_id)} if kind.endswith("tool_result"):
                    self.by_call.setdefault(call_id, block)


def _role(message: Mapping[str, Any]) -> Role:
    return check_choice("role", message.get("role"), ROLES)


def _system_texts(system: Content) -> list[str]:
    return [part.text for part in from_blocks(system) if isinstance(part, TextPart)]


def _as_list(content: Any) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, Sequence) or not all(isinstance(block, Mapping) for block in content):
        raise InvalidInput(f"`content` must be a string or an array of blocks, got {jsontext.type_of(content)}")
    return list(content)


def _parts(blocks: Sequence[Mapping[str, Any]], results: _Results) -> tuple[Part, ...]:
    return tuple(part for block in blocks if (part := _part(block, results)) is not None)


def _part(block: Mapping[str, Any], results: _Results) -> Part | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "thinking", "thinking": str(text)}:
            signature = block.get("signature")
            return ReasoningPart(text, {"anthropic": {"signature": signature}} if signature else None)
        case {"type": "redacted_thinking", "data": str(data)}:
            return ReasoningPart("", {"anthropic": {"redactedData": data}})
        case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
            return _call(call_id, name, block.get("input", {}), results.by_call.get(call_id))
        case {"type": "server_tool_use" | "mcp_tool_use", "id": str(call_id), "name": str(name)} if (
            call_id in results.by_call
        ):
            return _call(call_id, name, block.get("input", {}), results.by_call[call_id])
        case {"type": str(kind), "tool_use_id": str(call_id)} if (
            kind.endswith("tool_result") and call_id in results.call_ids
        ):
            return None
    return _file_part(block) or DataPart(FOREIGN_BLOCK, dict(block))


def _call(call_id: str, name: str, given: Any, result: Mapping[str, Any] | None) -> ToolPart:
    value = jsontext.dump(unwrap_input(given), "tool input")
    if result is None:
        return ToolPart(call_id, name, "input-available", value)
    content = result.get("content")
    match content:
        case {"error_code": str(code)}:
            return ToolPart(call_id, name, "output-error", value, error=code)
        case list() if result.get("type") not in ("tool_result", "mcp_tool_result"):
            content = [_readable(item) for item in content]
    if result.get("is_error"):
        return ToolPart(call_id, name, "output-error", value, error=plain_text(from_blocks(content or "")))
    return ToolPart(call_id, name, "output-available", value, output=jsontext.dump(content, "tool output"))


def _readable(item: Any) -> Any:
    """A result of a server tool without what only Anthropic can read."""
    return {key: value for key, value in item.items() if key != "encrypted_content"} if isinstance(item, dict) else item


def _file_part(block: Mapping[str, Any]) -> FilePart | None:
    title = block.get("title") or None
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return FilePart(kind, data_url(kind, data))
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return FilePart("image/*", url)
        case {"type": "document", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return FilePart(kind, data_url(kind, data), title)
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return FilePart("text/plain", data_url("text/plain", base64.b64encode(text.encode()).decode()), title)
        case {"type": "document", "source": {"type": "url", "url": str(url)}}:
            return FilePart("application/pdf", url, title)
    return None

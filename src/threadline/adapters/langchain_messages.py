"""Messages of LangChain as parts of Threadline's messages, and back.

A tool call is an open tool part of the assistant's message; its result is an assistant message of its own with the same
call and its output, because a stored message never changes. Prompts and pages join the two by the id of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from threadline.adapters.shown_parts import fit_parts
from threadline.core.errors import ExtraMissing
from threadline.core.files import IMAGE_TYPES, data_url, embedded, is_web_url
from threadline.core.messages import Role
from threadline.core.parts import (
    FilePart,
    Part,
    ReasoningPart,
    StepStartPart,
    TextPart,
    ToolPart,
    plain_text,
    tool_part,
)
from threadline.core.prompts import file_note
from threadline.core.sanitize import sanitize_json, sanitize_text

try:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
except ImportError as exc:
    raise ExtraMissing("langchain", "the LangChain adapter") from exc


class Calls:
    """The calls of a conversation, by id: a tool's result names only the id."""

    def __init__(self) -> None:
        self._calls: dict[str, Mapping[str, Any]] = {}

    def add(self, message: BaseMessage) -> None:
        for call in getattr(message, "tool_calls", None) or []:
            self._calls[str(call.get("id") or "")] = call

    def find(self, call_id: str) -> Mapping[str, Any]:
        return self._calls.get(call_id, {})


def to_parts(message: BaseMessage, calls: Calls) -> tuple[Role, tuple[Part, ...]] | None:
    """What the log shows of a message; None for instructions to the model, which are no part of a conversation."""
    if isinstance(message, SystemMessage):
        return None
    if isinstance(message, ToolMessage):
        return "assistant", fit_parts([_tool_result(message, calls)])
    parts = list(_content_parts(message.content))
    parts.extend(
        tool_part(str(call["name"]), str(call.get("id") or ""), sanitize_json(call.get("args")).value)
        for call in getattr(message, "tool_calls", None) or []
    )
    role: Role = "user" if _is_users(message) else "assistant"
    return role, fit_parts(parts)


def _is_users(message: BaseMessage) -> bool:
    return message.type in ("human", "user") or getattr(message, "role", "") == "user"


def _tool_result(message: ToolMessage, calls: Calls) -> ToolPart:
    call = calls.find(message.tool_call_id)
    name = str(message.name or call.get("name") or "tool")
    given = sanitize_json(call.get("args") or {}).value
    if message.status == "error":
        return tool_part(name, message.tool_call_id, given, error=_text_of(message.content) or "failed")
    return tool_part(name, message.tool_call_id, given, output=sanitize_json(message.content).value)


def _text_of(content: Any) -> str:
    return plain_text(list(_content_parts(content)))


def _content_parts(content: Any) -> Iterable[Part]:
    for block in [content] if isinstance(content, str) else content:
        if isinstance(block, str):
            yield TextPart(sanitize_text(block))
        elif isinstance(block, Mapping):
            part = _block_part(block)
            if part is not None:
                yield part


def _block_part(block: Mapping[str, Any]) -> Part | None:
    match block.get("type"):
        case "text" | "text-plain" | "output_text" | "input_text":
            return TextPart(sanitize_text(str(block.get("text") or "")))
        case "reasoning" | "thinking":
            return ReasoningPart(sanitize_text(str(block.get("reasoning") or block.get("thinking") or "")))
        case "image_url":
            url = block.get("image_url")
            return _file(str(url.get("url")) if isinstance(url, Mapping) else str(url), "image/*")
        case "image" | "audio" | "file" | "video" as kind:
            media = str(block.get("mime_type") or f"{kind}/*")
            if block.get("base64"):
                return _file(f"data:{media};base64,{block['base64']}", media)
            return _file(str(block["url"]), media) if block.get("url") else None
    # Calls are taken from `tool_calls`; other kinds are the provider's own and stay in the graph's state.
    return None


def _file(url: str, media: str) -> Part:
    if url.startswith("data:"):
        media = url[5:].partition(";")[0] or media
    if not url.startswith(("data:", "https:", "http:")):
        return TextPart(f"[file: {sanitize_text(url)[:200]}]")
    return FilePart(media, url)


def to_langchain(role: str, parts: Sequence[Part], message_id: str | None = None) -> list[BaseMessage]:
    """The messages that a history or a prompt of Threadline is for LangChain: results follow the message with their
    calls."""
    if role == "system":
        return [SystemMessage(content=plain_text(parts), id=message_id)]
    if role == "user":
        return [HumanMessage(content=_user_content(parts), id=message_id)]
    messages: list[BaseMessage] = []
    texts: list[str] = []
    open_calls: list[ToolPart] = []

    def close() -> None:
        if texts or open_calls:
            calls = [{"name": c.name, "args": _arguments(c), "id": c.call_id, "type": "tool_call"} for c in open_calls]
            messages.append(AIMessage(content="\n\n".join(texts), tool_calls=calls, id=message_id))
            messages.extend(_result(call) for call in open_calls if call.is_answered)
            texts.clear()
            open_calls.clear()

    for part in parts:
        if isinstance(part, TextPart):
            if open_calls:
                close()
            texts.append(part.text)
        elif isinstance(part, ToolPart):
            open_calls.append(part)
        elif isinstance(part, StepStartPart) and open_calls:
            close()
        elif isinstance(part, FilePart):
            texts.append(file_note(part))
    close()
    return messages


def _user_file(part: FilePart) -> dict[str, Any]:
    found = embedded(part)
    if found is not None and found.media_type in IMAGE_TYPES:
        return {"type": "image_url", "image_url": {"url": data_url(found.media_type, found.base64)}}
    if found is not None and found.media_type == "text/plain":
        return {"type": "text", "text": f"{file_note(part)}\n{found.content.decode()}"}
    if found is not None:
        return {
            "type": "file",
            "base64": found.base64,
            "mime_type": found.media_type,
            "filename": part.filename or "file",
        }
    if is_web_url(part) and part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url}}
    return {"type": "text", "text": file_note(part)}


def _arguments(call: ToolPart) -> dict[str, Any]:
    given = call.input_value()
    return given if isinstance(given, dict) else {} if given is None else {"input": given}


def _result(call: ToolPart) -> ToolMessage:
    failed = call.state != "output-available"
    output = call.error or "denied" if failed else call.output_value()
    text = output if isinstance(output, str) else (call.output or b"null").decode()
    status = "error" if failed else "success"
    return ToolMessage(content=text, tool_call_id=call.call_id, name=call.name, status=status)


def _user_content(parts: Sequence[Part]) -> Any:
    if all(isinstance(part, TextPart) for part in parts):
        return plain_text(parts)
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, TextPart):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, FilePart):
            content.append(_user_file(part))
    return content

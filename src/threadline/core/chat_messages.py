"""Codec for OpenAI's chat-completions messages: a prompt to messages, and messages to a prompt.

A tool part is an entry of `tool_calls`, with its arguments as JSON text, and a message of role `tool` after it.
`to_chat` repairs the prompt first and omits reasoning, which the format does not have. `from_chat` accepts anything an
export may contain: arguments that are not JSON stay a string, and a result without its call is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, quote
from threadline.core.files import IMAGE_TYPES, data_url, embedded, is_web_url
from threadline.core.messages import Role
from threadline.core.parts import DataPart, FilePart, Part, TextPart, ToolPart, plain_text
from threadline.core.prompts import (
    PromptMessage,
    append_round,
    file_note,
    join_same_role,
    outcome_text,
    split_rounds,
    text_with_file_notes,
    unwrap_input,
    wrap_input,
)
from threadline.core.repair import repair

FOREIGN_PART = "openai-part"
"""The name of the data part that keeps a content part as it came."""
_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def to_chat(
    messages: Iterable[PromptMessage],
    *,
    system_role: Literal["system", "developer"] = "system",
    alternating: bool = False,
) -> list[dict[str, Any]]:
    """`alternating` joins neighbours of one role: the templates of many local models refuse them."""
    repaired: Iterable[PromptMessage] = repair(messages)
    found: list[dict[str, Any]] = []
    for message in join_same_role(repaired) if alternating else repaired:
        match message.role:
            case "system":
                found.append({"role": system_role, "content": text_with_file_notes(message.parts)})
            case "user":
                found.append({"role": "user", "content": _user_content(message.parts)})
            case "assistant":
                for said, calls in split_rounds(message.parts):
                    found.extend(_round(text_with_file_notes(said), calls))
    return found


def _round(words: str, calls: Sequence[ToolPart]) -> list[dict[str, Any]]:
    if not calls:
        # After the last call there may be only a source, which is not sent.
        return [{"role": "assistant", "content": words}] if words else []
    # Several local servers require the key even without text.
    message = {"role": "assistant", "content": words or None, "tool_calls": [_call(call) for call in calls]}
    results: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for call in calls:
        text, found = _split_images(call)
        results.append({"role": "tool", "tool_call_id": call.call_id, "content": text})
        images += found
    # The format has no images in results, so they follow as if the user had sent them.
    return [message, *results, *([{"role": "user", "content": images}] if images else [])]


def _split_images(call: ToolPart) -> tuple[str, list[dict[str, Any]]]:
    """The result as text, and the images of an output that consists of content blocks."""
    value = call.output_value() if call.state == "output-available" else None
    if not isinstance(value, list) or not any(_is_image(item) for item in value):
        return outcome_text(call), []
    text = "\n".join("[an image, which follows]" if _is_image(item) else _block_text(item) for item in value)
    images = [item["source"] for item in value if _is_image(item)]
    return text, [
        {"type": "image_url", "image_url": {"url": data_url(each["media_type"], each["data"])}} for each in images
    ]


def _block_text(item: Any) -> str:
    return str(item["text"]) if isinstance(item, dict) and "text" in item else jsontext.dump(item).decode()


def _is_image(item: Any) -> bool:
    match item:
        case {"type": "image", "source": {"type": "base64", "media_type": str(), "data": str()}}:
            return True
    return False


def _call(call: ToolPart) -> dict[str, Any]:
    function = {"name": call.name, "arguments": wrap_input(call).decode()}
    return {"id": call.call_id, "type": "function", "function": function}


def _user_content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """One text where there is only text: small servers take nothing else."""
    if not any(isinstance(part, FilePart) for part in parts):
        return plain_text(parts)
    return [_content_part(part) for part in parts if isinstance(part, TextPart | FilePart)]


def _content_part(part: TextPart | FilePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    found = embedded(part)
    if found is not None and found.media_type in IMAGE_TYPES:
        return {"type": "image_url", "image_url": {"url": data_url(found.media_type, found.base64)}}
    if found is not None and found.media_type == "text/plain":
        return {"type": "text", "text": f"{file_note(part)}\n{found.content.decode()}"}
    if found is not None:
        body = {"filename": part.filename or "file", "file_data": data_url(found.media_type, found.base64)}
        return {"type": "file", "file": body}
    if is_web_url(part) and part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url}}
    return {"type": "text", "text": file_note(part)}


def from_chat(messages: Iterable[Mapping[str, Any]]) -> tuple[PromptMessage, ...]:
    """A whole conversation. An assistant's rounds become one message, its results next to their calls."""
    given = list(messages)
    results = _results(given)
    found: list[PromptMessage] = []
    continues = False
    for message in given:
        if message.get("role") == "tool":
            continues = bool(found) and found[-1].role == "assistant"
            continue
        role = _role(message)
        parts = (*_said(message.get("content")), *(_call_part(call, results) for call in _calls(message)))
        if continues and role == "assistant":
            found[-1] = PromptMessage(role, append_round(found[-1].parts, parts))
        elif parts:
            found.append(PromptMessage(role, parts))
        continues = False
    return tuple(found)


def _results(messages: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The text of every result by the id of its call; the first, if there are several."""
    results: dict[str, str] = {}
    for message in messages:
        match message:
            case {"role": "tool", "tool_call_id": str(call_id)}:
                results.setdefault(call_id, plain_text(_said(message.get("content"))))
    return results


def _role(message: Mapping[str, Any]) -> Role:
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise InvalidInput(f"`role` must be one of {', '.join(_ROLES)}, tool, got {quote(message.get('role'))}")
    return role


def _said(content: Any) -> tuple[Part, ...]:
    match content:
        case None | "":
            return ()
        case str():
            return (TextPart(content),)
        case list() | tuple() if all(isinstance(item, Mapping) for item in content):
            return tuple(_part(item) for item in content)
    raise InvalidInput(f"`content` must be a string or an array of content parts, got {jsontext.type_of(content)}")


def _part(item: Mapping[str, Any]) -> Part:
    match item:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return FilePart(_declared(url) or "image/*", url)
        case {"type": "file", "file": {"file_data": str(url), "filename": str(filename)}}:
            return FilePart(_declared(url) or "application/octet-stream", url, filename)
    return DataPart(FOREIGN_PART, dict(item))


def _declared(url: str) -> str | None:
    return url[5:].partition(",")[0].partition(";")[0] if url.startswith("data:") else None


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for call in message.get("tool_calls") or ():
        match call:
            case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
                found.append((call_id, name, arguments))
            case _:
                raise InvalidInput("tool call must have an `id` and a `function` with `name` and `arguments`")
    return found


def _call_part(call: tuple[str, str, str], results: Mapping[str, str]) -> ToolPart:
    call_id, name, arguments = call
    given = _input(arguments)
    if call_id not in results:
        return ToolPart(call_id, name, "input-available", given)
    output = jsontext.dump(results[call_id], "tool output")
    return ToolPart(call_id, name, "output-available", given, output=output)


def _input(arguments: str) -> bytes:
    """The arguments unchanged if they are an object; as a JSON string if they are not JSON."""
    try:
        value = jsontext.parse(arguments or "{}", "tool input")
    except InvalidInput:
        return jsontext.dump(arguments, "tool input")
    inner = unwrap_input(value)
    return (arguments or "{}").encode() if inner is value else jsontext.dump(inner, "tool input")

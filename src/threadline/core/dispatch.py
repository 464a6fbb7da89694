"""The dispatch payload: the request body for an agent behind HTTP, and for the bridge.

`messages` is the whole conversation in the format of OpenAI's chat API, with tool calls, results and files; `role` and
`content` repeat the text of the current message for agents that read only those. A caller's body is passed on as it was
sent, with Threadline's system messages first. A body without a message is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from threadline.core import jsontext
from threadline.core.chat_messages import to_chat
from threadline.core.context import SNAPSHOT_HEAD
from threadline.core.errors import InvalidMessage, quote
from threadline.core.prompts import Prompt, text_with_file_notes

_ROLES = ("user", "assistant", "system", "developer", "tool")


def payload(prompt: Prompt) -> dict[str, Any]:
    """The payload for a prompt: the caller's body if it has one. Messages without content are omitted."""
    if prompt.body is not None:
        return prompt.body
    spoken = [(message.role, text_with_file_notes(message.parts)) for message in prompt.messages]
    role, content = next(((role, text) for role, text in reversed(spoken) if text.strip()), ("user", ""))
    entries = [entry for entry in to_chat(prompt.messages) if not _is_blank(entry)]
    wanted = {} if prompt.response_format is None else {"response_format": prompt.response_format}
    return {"messages": entries, "role": role, "content": content, **wanted}


def with_system_messages(body: Mapping[str, Any], snapshot: str | None, system_prompt: str | None) -> dict[str, Any]:
    """The payload for a caller's body: pinned snapshot and system prompt first, then every message as it was sent."""
    head = [] if snapshot is None else [{"role": "system", "content": SNAPSHOT_HEAD + snapshot}]
    if system_prompt:
        head.append({"role": "system", "content": system_prompt})
    sent = normalize(body)
    return _with_legacy_fields({**body, "messages": [*head, *sent]}, sent)


def _with_legacy_fields(payload: dict[str, Any], sent: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """With `role` and `content`, unless the caller set its own."""
    if not _is_blank(payload):
        return {**payload, "role": payload.get("role") or "user"}
    current = sent[-1]
    if not isinstance(current.get("content"), str):
        return payload
    return {**payload, "role": current["role"], "content": current["content"]}


def texts(value: Any) -> Iterator[str]:
    """Every text in a body, wherever it is, for the guard: an agent may read any key. Embedded files are left out."""
    match value:
        case str() if not value.startswith("data:"):
            yield value
        case Mapping():
            for inner in value.values():
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)


def normalize(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a payload without blank ones; if there are none, the message in `role` and `content`.
    InvalidMessage if there is no message or an invalid one."""
    given = body.get("messages")
    if given is not None and not isinstance(given, list):
        raise InvalidMessage(f"`messages` must be an array, got {jsontext.type_of(given)}")
    entries = [_entry(item) for item in given or () if not _is_blank(item)]
    if entries:
        return entries
    if "content" not in body or _is_blank(body):
        raise InvalidMessage("payload contains no message: send `messages` or `content`")
    return [_entry({"role": body.get("role"), "content": body["content"]})]


def _is_blank(item: Any) -> bool:
    if not isinstance(item, Mapping):
        raise InvalidMessage(f"each of `messages` must be an object, got {jsontext.type_of(item)}")
    content = item.get("content")
    # The result of a call may be empty; without it the call would have none.
    if item.get("tool_calls") or item.get("role") == "tool":
        return False
    return not content or (isinstance(content, str) and not content.strip())


def _entry(item: Mapping[str, Any]) -> dict[str, Any]:
    role = item.get("role") or "user"
    if role not in _ROLES:
        raise InvalidMessage(f"`role` must be one of {', '.join(_ROLES)}, got {quote(role)}")
    content = item.get("content")
    if not isinstance(content, str | list | None):
        raise InvalidMessage(f"`content` must be a string or an array, got {jsontext.type_of(content)}")
    return {**item, "role": role}

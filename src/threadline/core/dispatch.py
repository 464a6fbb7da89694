"""The dispatch payload: the request body for an agent behind HTTP, and for the bridge.

`messages` is the whole conversation as role and text; `role` and `content` repeat the current message for agents that
read only those. A caller's body keeps its other fields. A body without a message is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadline.core import jsontext
from threadline.core.context import SNAPSHOT_HEAD
from threadline.core.errors import InvalidMessage, quote
from threadline.core.prompts import Prompt, text_with_file_notes

_ROLES = ("user", "assistant", "system", "developer", "tool")


def payload(prompt: Prompt) -> dict[str, Any]:
    """The payload for a prompt. A message without text, such as one with only tool calls, is omitted."""
    entries = [{"role": message.role, "content": text_with_file_notes(message.parts)} for message in prompt.messages]
    return _with_legacy_fields({"messages": [entry for entry in entries if entry["content"].strip()]})


def with_snapshot(body: Mapping[str, Any], snapshot: str | None) -> dict[str, Any]:
    """The payload for a caller's body: the snapshot first, then the body's messages in their order."""
    entries = normalize(body)
    if snapshot is not None:
        entries.insert(0, {"role": "system", "content": SNAPSHOT_HEAD + snapshot})
    return _with_legacy_fields({**body, "messages": entries})


def _with_legacy_fields(body: dict[str, Any]) -> dict[str, Any]:
    current = body if not _is_blank(body) else body["messages"][-1] if body["messages"] else {}
    if not isinstance(current.get("content"), str):
        return body
    return {**body, "role": current.get("role") or "user", "content": current["content"]}


def normalize(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a payload without blank ones; if there are none, the message in `role` and `content`.
    InvalidMessage if there is no message or an invalid one."""
    given = body.get("messages")
    if given is not None and not isinstance(given, list):
        raise InvalidMessage(f"`messages` must be an array, got {jsontext.type_of(given)}")
    entries = [_entry(item) for item in given or () if not _is_blank(item)]
    if entries:
        return entries
    if _is_blank(body):
        raise InvalidMessage("payload contains no message: send `messages` or `content`")
    return [_entry({"role": body.get("role"), "content": body["content"]})]


def _is_blank(item: Any) -> bool:
    if not isinstance(item, Mapping):
        raise InvalidMessage(f"each of `messages` must be an object, got {jsontext.type_of(item)}")
    content = item.get("content")
    if item.get("tool_calls"):
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

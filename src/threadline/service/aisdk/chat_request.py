"""Parsing of AI SDK clients' chat requests. Clients are not trusted.

Only three things are read: the text and files of the last user message, which message to edit or regenerate, and the
decisions on approvals that the last reply requested. History, other roles and tool results that a client sends are
ignored: the server's store is the only source of the history.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec

from threadline.api_types import Id, StateKey
from threadline.core import jsontext
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.ids import check_id, check_state_key
from threadline.core.messages import NewMessage
from threadline.core.parts import FilePart, OtherPart, Part, TextPart, ToolPart, decode
from threadline.core.turns import Policy
from threadline.service.http.faults import json_type
from threadline.service.http.requests import parse_object

Trigger: TypeAlias = Literal["submit-message", "regenerate-message"]
# Bounds the work of one request.
_MAX_PARTS = 1_000
_DATA_URL = "data:"


class Claim(msgspec.Struct, frozen=True):
    """A reply sent back with decisions on approvals: its id, and its tool calls as the client has them."""

    message_id: str
    calls: tuple[ToolPart, ...]


class ChatRequest(msgspec.Struct, frozen=True):
    """`message` is None for a regeneration and for decisions on approvals. `replaces` is the message to replace: the
    user message that is edited, or the reply to regenerate (None: the last)."""

    state_key: str | None
    thread_id: str | None = None
    trigger: Trigger = "submit-message"
    message: NewMessage | None = None
    replaces: str | None = None
    agent_id: str | None = None
    policy: Policy | None = None
    claim: Claim | None = None


class TextInput(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    text: str


class FileInput(msgspec.Struct, frozen=True, tag="file", tag_field="type", rename="camel"):
    media_type: str
    url: Annotated[str, msgspec.Meta(description="A `data:` URL.", extra_json_schema={"pattern": "^data:"})]
    filename: str | None = None


class UserMessage(msgspec.Struct, frozen=True):
    """With `parts`, or with a text as `content`."""

    role: Literal["user"]
    id: Id | None = None
    parts: Annotated[list[TextInput | FileInput], msgspec.Meta(max_length=_MAX_PARTS)] | None = None
    content: str | None = None


class HistoryMessage(msgspec.Struct, frozen=True):
    """A message of the client's history. Only the last user message is read; or the decisions on approvals, if the last
    message is a reply that contains some."""

    role: str
    id: str | None = None
    parts: list[Any] | None = None


class ChatRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    """The body as the API reference describes it; `parse_chat_request` validates it. Other keys are ignored."""

    id: StateKey | None = None
    state_key: StateKey | None = None
    thread_id: Annotated[Id, msgspec.Meta(description="A thread that exists, instead of a key.")] | None = None
    message: UserMessage | None = None
    messages: list[HistoryMessage] | None = None
    trigger: Trigger | None = None
    message_id: Id | None = None
    agent_id: Id | None = None
    policy: Policy | None = None


ChatBody: TypeAlias = Annotated[
    ChatRequestBody,
    msgspec.Meta(
        extra_json_schema={
            "anyOf": [
                {"required": ["message"]},
                {"required": ["messages"]},
                {"required": ["trigger"], "properties": {"trigger": {"const": "regenerate-message"}}},
            ]
        }
    ),
]


def parse_chat_request(body: bytes) -> ChatRequest:
    """InvalidInput or a subclass for anything that is not a request of an AI SDK client."""
    value = parse_object(body)
    trigger: Trigger = _one_of(value, "trigger", get_args(Trigger)) or "submit-message"
    state_key = _text(value, "stateKey" if value.get("stateKey") is not None else "id")
    replaces = _text(value, "messageId")
    agent_id = _text(value, "agentId")
    thread_id = _text(value, "threadId")
    if thread_id is not None and state_key is not None:
        raise InvalidInput("body must name the thread by `id` or by `threadId`, got both")
    claim = _claim(value) if trigger == "submit-message" else None
    return ChatRequest(
        state_key=None if state_key is None else check_state_key(state_key),
        thread_id=None if thread_id is None else check_id("thread", thread_id),
        trigger=trigger,
        message=_user_message(value) if trigger == "submit-message" and claim is None else None,
        replaces=None if replaces is None else check_id("message", replaces),
        agent_id=None if agent_id is None else check_id("agent", agent_id),
        policy=_one_of(value, "policy", get_args(Policy)),
        claim=claim,
    )


def _claim(body: dict[str, Any]) -> Claim | None:
    """The reply with decisions on approvals, if that is the last message."""
    messages = body.get("messages")
    last = body["message"] if "message" in body else messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant" or not isinstance(last.get("parts"), list):
        return None
    found = [part for part in last["parts"] if isinstance(part, dict)]
    if not any(part.get("state") == "approval-responded" for part in found):
        return None
    if len(found) > _MAX_PARTS:
        raise LimitExceeded("parts per message", _MAX_PARTS, len(found))
    parts = decode(jsontext.dump([part for part in found if isinstance(part.get("type"), str)], "parts"))
    if any(isinstance(part, OtherPart) for part in parts):
        raise InvalidInput("reply with approval decisions contains a part of unknown type: send the parts as received")
    message_id = check_id("message", _text(last, "id") or "")
    return Claim(message_id, tuple(part for part in parts if isinstance(part, ToolPart)))


def _user_message(body: dict[str, Any]) -> NewMessage:
    found = body["message"] if "message" in body else _last_user_message(body.get("messages"))
    if not isinstance(found, dict) or found.get("role") != "user":
        raise InvalidInput("no user message: send one as `message` or as the last of `messages`")
    message_id = _text(found, "id")
    parts = found.get("parts")
    if parts is None and isinstance(found.get("content"), str):
        parts = [{"type": "text", "text": found["content"]}]
    if not isinstance(parts, list):
        raise InvalidInput(f"`parts` of the message must be an array, got {json_type(parts)}")
    if len(parts) > _MAX_PARTS:
        raise LimitExceeded("parts per message", _MAX_PARTS, len(parts))
    return NewMessage("user", tuple(map(_part, parts)), id=message_id or None)


def _last_user_message(messages: Any) -> Any:
    if not isinstance(messages, list):
        raise InvalidInput(f"`messages` must be an array, got {json_type(messages)}")
    users = (each for each in reversed(messages) if isinstance(each, dict) and each.get("role") == "user")
    return next(users, None)


def _part(value: Any) -> Part:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "file", "mediaType": str(media_type), "url": str(url)}:
            # Fetching URLs that a client names would let it reach internal servers.
            if not url.startswith(_DATA_URL):
                raise InvalidInput("`url` of a file must be a data: URL: other addresses are not fetched")
            return FilePart(media_type, url, _text(value, "filename"))
        case {"type": str(kind)}:
            raise InvalidInput(f"part of a user message must be text or file, got {kind[:60]!r}")
    raise InvalidInput("part of the message must be an object with the keys of its `type`")


def _text(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise InvalidInput(f"`{key}` must be a string, got {json_type(found)}")
    return found


def _one_of(value: dict[str, Any], key: str, allowed: tuple[Any, ...]) -> Any:
    found = _text(value, key)
    if found is not None and found not in allowed:
        raise InvalidInput(f"`{key}` must be one of {', '.join(allowed)}, got {found[:60]!r}")
    return found

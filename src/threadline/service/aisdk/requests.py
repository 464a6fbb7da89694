"""The requests of AI SDK clients, read with suspicion.

Of everything a client sends, only three things count: the words and files of its last user message, which message it
wants edited or answered anew, and yes or no to what the last reply asked approval for. History, roles other than user,
tool results and whatever else it claims are not read at all: what was said is what the server stored.
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

Trigger: TypeAlias = Literal["submit-message", "regenerate-message"]
_PARTS = 1_000
_DATA_URL = "data:"


class Claim(msgspec.Struct, frozen=True):
    """A reply that came back with answers to approvals: its id, and its calls as the client has them."""

    message_id: str
    calls: tuple[ToolPart, ...]


class ChatRequest(msgspec.Struct, frozen=True):
    """`message` is None where a reply is to be written anew, or goes on. `replaces` names the message to go back to:
    the user's own that is edited, or the reply that is to be written anew (None: the last)."""

    state_key: str | None
    trigger: Trigger = "submit-message"
    message: NewMessage | None = None
    replaces: str | None = None
    agent_id: str | None = None
    policy: Policy | None = None
    claim: Claim | None = None


class TextGiven(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    text: str


class FileGiven(msgspec.Struct, frozen=True, tag="file", tag_field="type", rename="camel"):
    media_type: str
    url: Annotated[str, msgspec.Meta(description="A data: URL.", extra_json_schema={"pattern": "^data:"})]
    filename: str | None = None


class UserMessage(msgspec.Struct, frozen=True):
    """`parts`, or a text as `content`."""

    role: Literal["user"]
    id: Id | None = None
    parts: Annotated[list[TextGiven | FileGiven], msgspec.Meta(max_length=_PARTS)] | None = None
    content: str | None = None


class AnyMessage(msgspec.Struct, frozen=True):
    """A message of the client's history. Only the last one of the user is read, or, if the very last is a reply whose
    approvals are answered, those answers."""

    role: str
    id: str | None = None
    parts: list[Any] | None = None


class ChatRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    """What a client sends, for those who read the API; `read_request` is what decides. Other keys are not read."""

    id: StateKey | None = None
    state_key: StateKey | None = None
    message: UserMessage | None = None
    messages: list[AnyMessage] | None = None
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


def read_request(body: bytes) -> ChatRequest:
    """InvalidInput (or a kind of it) for anything that is not a request of these clients."""
    value = jsontext.parse(body)
    if not isinstance(value, dict):
        raise InvalidInput("the body is a JSON object")
    trigger: Trigger = _one_of(value, "trigger", get_args(Trigger)) or "submit-message"
    state_key = _text(value, "stateKey" if value.get("stateKey") is not None else "id")
    replaces = _text(value, "messageId")
    agent_id = _text(value, "agentId")
    claim = _claim(value) if trigger == "submit-message" else None
    return ChatRequest(
        state_key=None if state_key is None else check_state_key(state_key),
        trigger=trigger,
        message=_user_message(value) if trigger == "submit-message" and claim is None else None,
        replaces=None if replaces is None else check_id("message", replaces),
        agent_id=None if agent_id is None else check_id("agent", agent_id),
        policy=_one_of(value, "policy", get_args(Policy)),
        claim=claim,
    )


def _claim(body: dict[str, Any]) -> Claim | None:
    """The reply that came back, if the last thing the client sends is one with an approval answered."""
    messages = body.get("messages")
    last = body["message"] if "message" in body else messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant" or not isinstance(last.get("parts"), list):
        return None
    found = [part for part in last["parts"] if isinstance(part, dict)]
    if not any(part.get("state") == "approval-responded" for part in found):
        return None
    if len(found) > _PARTS:
        raise LimitExceeded("parts per message", _PARTS, len(found))
    parts = decode(jsontext.dump([part for part in found if isinstance(part.get("type"), str)], "parts"))
    if any(isinstance(part, OtherPart) for part in parts):
        raise InvalidInput("the reply that came back holds a part that is not understood")
    message_id = check_id("message", _text(last, "id") or "")
    return Claim(message_id, tuple(part for part in parts if isinstance(part, ToolPart)))


def _user_message(body: dict[str, Any]) -> NewMessage:
    found = body["message"] if "message" in body else _last_user_message(body.get("messages"))
    if not isinstance(found, dict) or found.get("role") != "user":
        raise InvalidInput("there is no user message to answer")
    message_id = _text(found, "id")
    parts = found.get("parts")
    if parts is None and isinstance(found.get("content"), str):
        parts = [{"type": "text", "text": found["content"]}]
    if not isinstance(parts, list):
        raise InvalidInput("a message has an array of parts")
    if len(parts) > _PARTS:
        raise LimitExceeded("parts per message", _PARTS, len(parts))
    return NewMessage("user", tuple(map(_part, parts)), id=message_id or None)


def _last_user_message(messages: Any) -> Any:
    if not isinstance(messages, list):
        raise InvalidInput("messages is an array, or message is an object")
    users = (each for each in reversed(messages) if isinstance(each, dict) and each.get("role") == "user")
    return next(users, None)


def _part(value: Any) -> Part:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "file", "mediaType": str(media_type), "url": str(url)}:
            if not url.startswith(_DATA_URL):
                raise InvalidInput("a file is sent along as a data: URL, never named by an address")
            return FilePart(media_type, url, _text(value, "filename"))
        case {"type": str(kind)}:
            raise InvalidInput(f"a user message holds text and files, not {kind[:60]!r}")
    raise InvalidInput("a part is an object with a type")


def _text(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise InvalidInput(f"{key} is a string")
    return found


def _one_of(value: dict[str, Any], key: str, allowed: tuple[Any, ...]) -> Any:
    found = _text(value, key)
    if found is not None and found not in allowed:
        raise InvalidInput(f"{key} is one of {', '.join(allowed)}")
    return found

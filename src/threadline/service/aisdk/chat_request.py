"""Parsing of AI SDK clients' chat requests. Clients are not trusted.

Read are: the question, which is the last user message; the ids of the messages before it, which say what the client
shows; which message to edit or regenerate; the decisions on approvals that the last reply requested, and the outputs of
the client tools that it called; and the tools that the client offers to run. The content of the history, other roles
and other tool results are ignored: the store is the only source of the history.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from threadline.api_types import Id, StateKey
from threadline.core import jsontext
from threadline.core.client_tools import MAX_DESCRIPTION, MAX_TOOLS, TOOL_NAME, ClientTool, read_declared
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.ids import check_id, check_state_key
from threadline.core.messages import NewMessage
from threadline.core.parts import DataPart, FilePart, OtherPart, Part, TextPart, ToolPart, decode
from threadline.core.turns import Policy
from threadline.service.http.faults import json_type
from threadline.service.http.requests import parse_object

Trigger: TypeAlias = Literal["submit-message", "regenerate-message"]
# Bounds the work of one request.
_MAX_PARTS = 1_000
_DATA_URL = "data:"
# What assistant-ui sends: the id of a thread that only the page knows, the names of its one unnamed thread, and the ids
# of messages and of the question.
_LOCAL_THREAD = "__LOCALID_"
_PLACEHOLDERS = ("__DEFAULT_ID__", "DEFAULT_THREAD_ID")
_MESSAGE_ID = "unstable_id"
_PARENT = "parentId"
_DATA_KIND = "data-"
_EXAMPLE = '{"message": {"role": "user", "content": "…"}}'
_ANSWERED = ("approval-responded", "output-available", "output-error")


class Claim(msgspec.Struct, frozen=True):
    """A reply sent back with answers to its open calls: its id (None: the last message), and its tool calls as the
    client has them."""

    message_id: str | None
    calls: tuple[ToolPart, ...]


class SentQuestion(msgspec.Struct, frozen=True):
    """The last user message of a request, as it was sent."""

    id: str | None
    parts: list[Any]
    metadata: dict[str, Any] | None = None

    def message(self) -> NewMessage:
        """InvalidInput if it is not a message that a user may send."""
        return NewMessage("user", tuple(map(_part, self.parts)), id=self.id or None, metadata=self.metadata)


class ShownMessage(NamedTuple):
    """A message that the client shows before the question."""

    id: str
    is_user: bool


class ChatRequest(msgspec.Struct, frozen=True):
    """`question` is None for answers to open calls, and for a regeneration that shows no question. `replaces` is the
    message to replace: the user message that is edited, or the reply to regenerate (None: the last)."""

    state_key: str | None
    thread_id: str | None = None
    trigger: Trigger = "submit-message"
    question: SentQuestion | None = None
    shown: tuple[ShownMessage, ...] = ()
    replaces: str | None = None
    rewind: bool = False
    """Whether messages that the client does not show are left behind on the old timeline."""
    agent_id: str | None = None
    model: str | None = None
    policy: Policy | None = None
    claim: Claim | None = None
    client_tools: tuple[ClientTool, ...] = ()


class TextInput(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    text: str


class FileInput(msgspec.Struct, frozen=True, tag="file", tag_field="type", rename="camel"):
    media_type: str
    url: Annotated[str, msgspec.Meta(description="A `data:` URL.", extra_json_schema={"pattern": "^data:"})]
    filename: str | None = None


class FileContent(msgspec.Struct, frozen=True, tag="file", tag_field="type", rename="camel"):
    media_type: str
    data: Annotated[str, msgspec.Meta(description="A `data:` URL.", extra_json_schema={"pattern": "^data:"})]
    filename: str | None = None


class DataInput(msgspec.Struct, frozen=True, tag="data-…", tag_field="type"):
    data: Any
    id: str | None = None


class UserMessage(msgspec.Struct, frozen=True):
    """With `parts`, as the AI SDK sends it; or with `content`, as assistant-ui and model providers write it. A part of
    type `data-NAME` has any JSON as `data`, perhaps an `id`. `metadata` and data parts are stored and returned; models
    are not shown them."""

    role: Literal["user"]
    id: Id | None = None
    parts: Annotated[list[TextInput | FileInput | DataInput], msgspec.Meta(max_length=_MAX_PARTS)] | None = None
    content: str | Annotated[list[TextInput | FileContent], msgspec.Meta(max_length=_MAX_PARTS)] | None = None
    metadata: dict[str, Any] | None = None


class HistoryMessage(msgspec.Struct, frozen=True):
    """A message of the client's history. Only the last user message is read, and the ids of those before it; or the
    answers to open calls, if the last message is a reply that contains some: decisions on approvals and outputs of
    client tools."""

    role: str
    id: str | None = None
    parts: list[Any] | None = None


_OBJECT_SCHEMA = {"required": ["type"], "properties": {"type": {"const": "object"}}}


class DeclaredTool(msgspec.Struct, frozen=True):
    """`parameters` is the JSON Schema of the tool's input, an object."""

    parameters: Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=_OBJECT_SCHEMA)]
    description: Annotated[str, msgspec.Meta(max_length=MAX_DESCRIPTION)] | None = None


DeclaredTools: TypeAlias = Annotated[
    dict[str, DeclaredTool],
    msgspec.Meta(
        description="Tools that this client runs, by name. The chat route reads `tools` if it is absent.",
        extra_json_schema={"maxProperties": MAX_TOOLS, "propertyNames": {"pattern": f"^{TOOL_NAME.pattern}$"}},
    ),
]


class ChatRequestBody(msgspec.Struct, frozen=True, rename="camel"):
    """The body as the API reference describes it; `parse_chat_request` validates it. Other keys are ignored."""

    id: StateKey | None = None
    state_key: StateKey | None = None
    thread_id: Annotated[Id, msgspec.Meta(description="A thread that exists, instead of a key.")] | None = None
    message: Annotated[UserMessage | str, msgspec.Meta(description="A text is a message with that text.")] | None = None
    messages: list[HistoryMessage] | None = None
    trigger: Trigger | None = None
    message_id: Id | None = None
    rewind: (
        Annotated[
            bool, msgspec.Meta(description="Leave messages that `messages` does not show behind, on the old timeline.")
        ]
        | None
    ) = None
    agent_id: Id | None = None
    model: Annotated[str, msgspec.Meta(description="A model that the agent offers, for this turn.")] | None = None
    policy: Policy | None = None
    client_tools: DeclaredTools | None = None


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
    # assistant-ui's data stream runtime names the question to answer, new or not, and no trigger.
    default: Trigger = "regenerate-message" if isinstance(value.get(_PARENT), str) else "submit-message"
    trigger: Trigger = _one_of(value, "trigger", get_args(Trigger)) or default
    state_key, thread_id = _thread_names(value)
    replaces = _text(value, "messageId")
    agent_id = _text(value, "agentId")
    if "message" in value and value.get("rewind"):
        raise InvalidInput("`rewind` needs the messages that the user sees: send `messages` instead of `message`")
    claim = _results(value) or (_claim(value) if trigger == "submit-message" else None)
    question, shown = (None, ()) if claim is not None else _question(value, trigger, replaces)
    return ChatRequest(
        state_key=None if state_key is None else check_state_key(state_key),
        thread_id=None if thread_id is None else check_id("thread", thread_id),
        trigger=trigger,
        question=question,
        shown=shown,
        replaces=None if replaces is None else check_id("message", replaces),
        rewind=_flag(value, "rewind"),
        agent_id=None if agent_id is None else check_id("agent", agent_id),
        model=_text(value, "model") or None,
        policy=_one_of(value, "policy", get_args(Policy)),
        claim=claim,
        client_tools=_client_tools(value),
    )


def _client_tools(body: dict[str, Any]) -> tuple[ClientTool, ...]:
    """`tools` is what assistant-ui sends; any other value than an object under that name is the application's own."""
    if body.get("clientTools") is not None:
        return read_declared(body["clientTools"], "clientTools")
    tools = body.get("tools")
    return read_declared(tools, "tools") if isinstance(tools, dict) else ()


def _thread_names(body: dict[str, Any]) -> tuple[str | None, str | None]:
    """The state key and the thread's id, of which one may be given. assistant-ui sends a `threadId` of its own."""
    state_key = _text(body, "stateKey" if body.get("stateKey") is not None else "id")
    thread_id = _text(body, "threadId")
    if thread_id is not None and thread_id.startswith(_LOCAL_THREAD):
        return state_key or thread_id, None
    if thread_id in _PLACEHOLDERS:
        if state_key is None:
            raise InvalidInput(f"`threadId` must name one thread, got {thread_id!r}: send a `stateKey` in the body")
        return state_key, None
    if thread_id is not None and state_key is not None:
        raise InvalidInput("body must name the thread by `id` or by `threadId`, got both")
    return state_key, thread_id


def _claim(body: dict[str, Any]) -> Claim | None:
    """The reply with answers to its open calls, if that is the last message."""
    messages = body.get("messages")
    last = body["message"] if "message" in body else messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "assistant" or not isinstance(last.get("parts"), list):
        return None
    found = [part for part in last["parts"] if isinstance(part, dict)]
    if not any(part.get("state") in _ANSWERED and _is_tool(part) for part in found):
        return None
    if len(found) > _MAX_PARTS:
        raise LimitExceeded("parts per message", _MAX_PARTS, len(found))
    parts = decode(jsontext.dump([part for part in found if isinstance(part.get("type"), str)], "parts"))
    if any(isinstance(part, OtherPart) for part in parts):
        raise InvalidInput("reply with answers contains a part of unknown type: send the parts as received")
    message_id = check_id("message", _text(last, "id") or "")
    return Claim(message_id, tuple(part for part in parts if isinstance(part, ToolPart)))


def _results(body: dict[str, Any]) -> Claim | None:
    """The results of client tools as assistant-ui's data stream runtime sends them: a last message of the role `tool`,
    after the message with the calls. Its ids of replies are its own, so the reply is the thread's last message."""
    messages = body.get("messages")
    if not isinstance(messages, list) or len(messages) < 2 or _role(messages[-1]) != "tool":
        return None
    content, calls = (each.get("content") if isinstance(each, dict) else None for each in messages[:-3:-1])
    if not isinstance(content, list) or not isinstance(calls, list):
        return None
    if len(content) + len(calls) > _MAX_PARTS:
        raise LimitExceeded("parts per message", _MAX_PARTS, len(content) + len(calls))
    inputs = {
        call["toolCallId"]: call.get("input")
        for call in calls
        if isinstance(call, dict) and call.get("type") == "tool-call" and isinstance(call.get("toolCallId"), str)
    }
    parts = decode(jsontext.dump([_result(each, inputs) for each in content], "results"))
    return Claim(None, tuple(part for part in parts if isinstance(part, ToolPart)))


def _result(value: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """A result as a part of a UI message."""
    match value:
        case {"toolCallId": str(call_id), "toolName": str(name), "output": {"type": str(kind), "value": found}}:
            part = {"type": f"tool-{name}", "toolCallId": call_id, "input": inputs.get(call_id)}
            if kind.startswith("error"):
                text = found if isinstance(found, str) else jsontext.dump(found, "error").decode()
                return {**part, "state": "output-error", "errorText": text}
            return {**part, "state": "output-available", "output": found}
    raise InvalidInput("result of a tool must have `toolCallId`, `toolName` and an `output` with `type` and `value`")


def _is_tool(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and (kind == "dynamic-tool" or kind.startswith("tool-"))


def _question(
    body: dict[str, Any], trigger: Trigger, replaces: str | None
) -> tuple[SentQuestion | None, tuple[ShownMessage, ...]]:
    """The last user message, and the messages before it that have ids. A regeneration need not show a question."""
    if "message" in body and not isinstance(body["message"], str | dict):
        kind = json_type(body["message"])
        raise InvalidInput(f"`message` must be a string or an object, got {kind}: send {_EXAMPLE}")
    given = [body["message"]] if "message" in body else body.get("messages")
    if trigger == "regenerate-message":
        given = _before_reply([] if given is None else given, replaces)
    if given is None:
        raise InvalidInput(f"no `message`: send {_EXAMPLE}, or `messages` as the AI SDK does")
    if not isinstance(given, list):
        raise InvalidInput(f"`messages` must be an array, got {json_type(given)}")
    at = next((at for at in range(len(given) - 1, -1, -1) if _role(given[at]) == "user"), None)
    if at is None and trigger == "regenerate-message" and "message" not in body:
        return None, ()
    if at is None:
        raise InvalidInput(f"no user message: send {_EXAMPLE}, or one as the last of `messages`")
    shown = ((_id(each), _role(each) == "user") for each in given[:at])
    question = _sent(given[at])
    if question.id is None and isinstance(body.get(_PARENT), str):
        question = msgspec.structs.replace(question, id=body[_PARENT])
    return question, tuple(ShownMessage(id, is_user) for id, is_user in shown if isinstance(id, str))


def _id(message: Any) -> Any:
    return message.get("id", message.get(_MESSAGE_ID)) if isinstance(message, dict) else None


def _before_reply(messages: Any, reply_id: str | None) -> Any:
    """Without the reply that is regenerated and everything after it. The AI SDK leaves them out itself."""
    if reply_id is None or not isinstance(messages, list):
        return messages
    ids = [each.get("id") if isinstance(each, dict) else None for each in messages]
    if reply_id not in ids:
        return messages
    at = ids.index(reply_id)
    return messages[: at + (_role(messages[at]) == "user")]


def _role(message: Any) -> Any:
    if isinstance(message, str):
        return "user"
    return message.get("role") if isinstance(message, dict) else None


def _sent(message: Any) -> SentQuestion:
    if isinstance(message, str):
        return SentQuestion(None, [{"type": "text", "text": message}])
    parts = message.get("parts")
    if parts is None:
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise InvalidInput(f"`parts` or `content` of the message must be an array, got {json_type(parts)}")
    if len(parts) > _MAX_PARTS:
        raise LimitExceeded("parts per message", _MAX_PARTS, len(parts))
    metadata = message.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidInput(f"`metadata` of the message must be an object, got {json_type(metadata)}")
    return SentQuestion(_text(message, "id") or _text(message, _MESSAGE_ID), parts, metadata)


def _part(value: Any) -> Part:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        # `url` in the AI SDK's parts, `data` in content arrays.
        case {"type": "file", "mediaType": str(media_type), "url": str(url)}:
            return _file(media_type, url, _text(value, "filename"))
        case {"type": "file", "mediaType": str(media_type), "data": str(url)}:
            return _file(media_type, url, _text(value, "filename"))
        case {"type": str(kind), "data": data} if len(kind) > len(_DATA_KIND) and kind.startswith(_DATA_KIND):
            return DataPart(kind.removeprefix(_DATA_KIND), data, _text(value, "id"))
        case {"type": str(kind)}:
            raise InvalidInput(f"part of a user message must be text, file or data-NAME with `data`, got {kind[:60]!r}")
    raise InvalidInput("part of the message must be an object with the keys of its `type`")


def _file(media_type: str, url: str, filename: str | None) -> FilePart:
    # Fetching URLs that a client names would let it reach internal servers.
    if not url.startswith(_DATA_URL):
        raise InvalidInput("`url` of a file must be a data: URL: other addresses are not fetched")
    return FilePart(media_type, url, filename)


def _flag(value: dict[str, Any], key: str) -> bool:
    found = value.get(key)
    if found is not None and not isinstance(found, bool):
        raise InvalidInput(f"`{key}` must be true or false, got {json_type(found)}")
    return bool(found)


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

"""Bodies and objects of OpenAI's API as its description shows them. Keys that are not listed are ignored."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from threadline.core.errors import InvalidInput


class ConversationRef(msgspec.Struct, frozen=True):
    id: str


class TextConfig(msgspec.Struct, frozen=True):
    format: dict[str, Any] | None = None


class CreateResponseBody(msgspec.Struct, frozen=True):
    """`model` is an agent's id, or `AGENT/MODEL`; without one the default agent replies."""

    input: str | list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    instructions: str | None = None
    metadata: dict[str, str] | None = None
    tools: list[dict[str, Any]] | None = None
    text: TextConfig | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatCompletionBody(msgspec.Struct, frozen=True):
    """Nothing is stored. Other keys are passed on to agents behind HTTP."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None


class RetrieveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `stream` true, the stream of the response from its beginning, or after an event's number."""

    stream: bool | None = None
    starting_after: int | None = None
    include_obfuscation: bool | None = None


class ResponseObject(msgspec.Struct, frozen=True):
    id: str
    object: Literal["response"]
    status: Literal["queued", "in_progress", "completed", "failed", "cancelled", "incomplete"]
    output: list[dict[str, Any]]


class ChatCompletionObject(msgspec.Struct, frozen=True):
    id: str
    object: Literal["chat.completion"]
    choices: list[dict[str, Any]]


class ModelObject(msgspec.Struct, frozen=True):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "threadline"


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelObject]
    object: Literal["list"] = "list"


class ItemList(msgspec.Struct, frozen=True):
    data: list[dict[str, Any]]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False
    object: Literal["list"] = "list"


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event of a stream. `data` is its JSON."""

    data: str
    event: str | None = None


def split_model(model: str | None, default: str) -> tuple[str, str | None]:
    """The agent's id, and the model if the name has one. InvalidInput."""
    if model is None:
        return default, None
    agent_id, _, name = model.partition("/")
    if not agent_id:
        raise InvalidInput("`model` must be an agent's id or AGENT/MODEL, got no agent")
    return agent_id, name or None

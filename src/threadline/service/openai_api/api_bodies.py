"""Bodies and objects of OpenAI's API as its description shows them. Keys that are not listed are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from threadline.core.errors import InvalidInput
from threadline.core.model_options import ModelOptions, check_model_options, read_tool_choice


class ConversationRef(msgspec.Struct, frozen=True):
    id: str


class TextConfig(msgspec.Struct, frozen=True):
    format: dict[str, Any] | None = None


class ReasoningConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None


class CreateResponseBody(msgspec.Struct, frozen=True):
    """`model` is an agent's id, or `AGENT/MODEL`; without one the default agent replies. What is left out of the
    model's settings is as the agent has it."""

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
    include: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    prompt: dict[str, Any] | None = None

    def model_options(self) -> ModelOptions:
        """InvalidInput."""
        wanted = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_output_tokens": self.max_output_tokens,
            "tool_choice": read_tool_choice(self.tool_choice),
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning_effort": None if self.reasoning is None else self.reasoning.effort,
        }
        return check_model_options({key: value for key, value in wanted.items() if value is not None})


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatCompletionBody(msgspec.Struct, frozen=True):
    """Nothing is stored, unless `metadata.thread` or the header X-Thread names a thread. Other keys are passed on to
    agents behind HTTP."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None


class RetrieveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `stream` true, the stream of the response from its beginning, or after an event's number."""

    stream: bool | None = None
    starting_after: int | None = None
    include_obfuscation: bool | None = None


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items after the one with the id `after`, newest first unless `order` is `asc`."""

    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


class ConversationBody(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None


class ConversationChanges(msgspec.Struct, frozen=True):
    metadata: dict[str, str]


class ItemsBody(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]]


class ConversationObject(msgspec.Struct, frozen=True):
    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


class DeletedObject(msgspec.Struct, frozen=True):
    id: str
    object: Literal["conversation.deleted", "response"]
    deleted: bool = True


class ItemObject(msgspec.Struct, frozen=True):
    id: str
    type: str


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

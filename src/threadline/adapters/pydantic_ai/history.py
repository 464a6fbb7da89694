"""`save_messages` and `load_messages`: the message history of Pydantic AI in a thread.

A prompt of the user is a message, and so is all that an agent does until the next one: texts, reasoning, and calls of
tools with their results. The messages are read back equal to those that were saved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, SystemPromptPart, UserPromptPart

from threadline.adapters.exact_log import ExactLog, Shown
from threadline.adapters.pydantic_ai.prompt_messages import responses, user_content
from threadline.adapters.pydantic_ai.shown_messages import shown_parts
from threadline.core.errors import InvalidInput
from threadline.core.messages import Message
from threadline.core.parts import plain_text
from threadline.core.prompts import PromptMessage
from threadline.core.repair import repair
from threadline.core.sanitize import sanitize_text
from threadline.ports import GatewayThread

_LOG = ExactLog("pydantic-ai.messages")


async def save_messages(thread: GatewayThread, messages: Sequence[ModelMessage], *, key: str | None = None) -> None:
    """Adds messages, such as `result.new_messages()`, at the end of the thread; all or none. A repeat of the same
    messages, or of the same `key`, stores nothing. InvalidInput for what is no message; DuplicateId for a key that was
    used for other messages."""
    if not messages:
        return
    exact = _dump(messages)
    named = json.dumps(exact, sort_keys=True) if key is None else f"key:{key}"
    digest = sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    batch = _LOG.batch(_shown(messages, exact), key=digest)
    await thread.append(*batch.messages, values=[batch.value])


async def load_messages(thread: GatewayThread, *, newest: int | None = None) -> list[ModelMessage]:
    """For `agent.run(message_history=…)`: the whole history, or the `newest` messages of the thread. What others added
    to the thread is converted."""
    messages = await thread.messages() if newest is None else await thread.messages(newest=newest)
    found: list[ModelMessage] = []
    for message, exact in zip(messages, await _LOG.read(thread, messages), strict=True):
        if exact is None:
            found.extend(_converted(message))
        else:
            # As JSON: only then are bytes read as base64. Pydantic reads no half characters.
            text = sanitize_text(json.dumps(exact, ensure_ascii=False))
            found.extend(ModelMessagesTypeAdapter.validate_json(text))
    return found


def _dump(messages: Sequence[ModelMessage]) -> list[Any]:
    for message in messages:
        if getattr(message, "kind", None) not in ("request", "response"):
            raise InvalidInput(f"messages must be ModelRequest or ModelResponse, got {type(message).__name__}")
    exact: list[Any] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return exact


def _shown(messages: Sequence[ModelMessage], exact: Sequence[Any]) -> list[Shown]:
    shown: list[Shown] = []
    first = 0
    for number, message in enumerate(messages):
        ends = number + 1 == len(messages) or _is_prompt(messages[number + 1])
        if _is_prompt(message):
            shown.append(Shown("user", shown_parts([message], messages), exact[number : number + 1]))
            first = number + 1
        elif ends:
            shown.append(
                Shown("assistant", shown_parts(messages[first : number + 1], messages), exact[first : number + 1])
            )
            first = number + 1
    return shown


def _is_prompt(message: ModelMessage) -> bool:
    return message.kind == "request" and any(isinstance(part, UserPromptPart) for part in message.parts)


def _converted(message: Message) -> list[ModelMessage]:
    at = message.created_at
    if message.role == "user":
        return [ModelRequest(parts=[UserPromptPart(content=user_content(message.parts), timestamp=at)])]
    if message.role == "system":
        return [ModelRequest(parts=[SystemPromptPart(content=plain_text(message.parts), timestamp=at)])]
    found = [each for prompt in repair([PromptMessage("assistant", message.parts)]) for each in responses(prompt.parts)]
    # The same messages each time they are read: the default is the present time.
    for each in found:
        for stamped in (each, *each.parts):
            if getattr(stamped, "timestamp", None) is not None:
                stamped.timestamp = at
    return found

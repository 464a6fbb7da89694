"""The official clients' types as oracles for what the codecs write."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
from anthropic import types as anthropic
from hypothesis import given, settings
from openai.types import chat as openai

from tests.core import strategies
from tests.core.golden_files import golden_prompt
from threadline.core.blocks import to_blocks
from threadline.core.chat_messages import to_chat
from threadline.core.prompts import PromptMessage

_STRICT = pydantic.ConfigDict(extra="forbid")
# The declared union also takes the models of answers, which allow anything; these are the ones for requests.
BLOCKS = pydantic.TypeAdapter(
    list[
        anthropic.TextBlockParam
        | anthropic.ImageBlockParam
        | anthropic.DocumentBlockParam
        | anthropic.ThinkingBlockParam
        | anthropic.RedactedThinkingBlockParam
        | anthropic.ToolUseBlockParam
        | anthropic.ToolResultBlockParam
    ],
    config=_STRICT,
)
MESSAGES = pydantic.TypeAdapter(list[anthropic.MessageParam])
CHAT = pydantic.TypeAdapter(list[openai.ChatCompletionMessageParam], config=_STRICT)


def consume(value: Any) -> None:
    """Declared iterables are validated only when they are read."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, str | bytes | int | float | None):
        for item in value:
            consume(item)


def check_blocks(messages: tuple[PromptMessage, ...] | list[PromptMessage]) -> None:
    found = to_blocks(messages).messages
    consume(MESSAGES.validate_python(found))
    for message in found:
        consume(BLOCKS.validate_python(message["content"]))


def check_chat(messages: tuple[PromptMessage, ...] | list[PromptMessage]) -> None:
    consume(CHAT.validate_python(to_chat(messages)))
    consume(CHAT.validate_python(to_chat(messages, system_role="developer", alternating=True)))


def test_the_recorded_conversation_is_what_both_clients_declare() -> None:
    check_blocks(golden_prompt("conversation.ui.json"))
    check_chat(golden_prompt("conversation.ui.json"))


@settings(max_examples=50)
@given(strategies.histories)
def test_any_history_is_what_both_clients_declare(history: list[PromptMessage]) -> None:
    check_blocks(history)
    check_chat(history)


def test_the_oracles_reject_invalid_messages() -> None:
    with pytest.raises(pydantic.ValidationError):
        consume(BLOCKS.validate_python([{"type": "tool_use", "id": "c", "name": "t", "input": "text"}]))
    with pytest.raises(pydantic.ValidationError):
        consume(CHAT.validate_python([{"role": "tool", "content": "x", "tool_call_id": 7}]))

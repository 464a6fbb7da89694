"""Anthropic: one streamed round of the messages API through the official client.

The client's own retries are off, because it does not know whether the user has seen output. The key is always passed
explicitly, so that the client never sends a key from the environment to another server.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.provider_streams import AnthropicStream
from threadline.core.blocks import to_blocks
from threadline.core.errors import ExtraMissing, SettingsInvalid
from threadline.core.events import Event
from threadline.core.prompts import PromptMessage
from threadline.net.retry import Retrier

try:
    import anthropic

    from threadline.agents.sdk_errors import as_json, translate_sdk_errors
except ModuleNotFoundError as exc:
    raise ExtraMissing("anthropic", "an Anthropic agent") from exc

MAX_TOKENS = 8_192
SILENCE_SECONDS = 120.0
"""Reasoning models can be silent for a minute before their first token."""
_CONNECT_SECONDS = 10.0


class AnthropicModel:
    """`options` are added to each request unchanged: `thinking`, `temperature`, `cache_control` and so on."""

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = MAX_TOKENS,
        silence_seconds: float = SILENCE_SECONDS,
        options: Mapping[str, Any] | None = None,
        retrier: Retrier | None = None,
    ) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._who = "the model server" if base_url else "Anthropic"
        self._options = dict(options or {})
        self._retrier = retrier or Retrier()
        self._client = anthropic.AsyncAnthropic(
            api_key=_key(api_key, base_url),
            base_url=base_url,
            timeout=anthropic.Timeout(silence_seconds, connect=_CONNECT_SECONDS),
            max_retries=0,
        )

    def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        system, conversation = to_blocks(messages)
        model = settings.model or self._model
        if model is None:
            raise SettingsInvalid("agent has no model: set `model` on the agent or the thread")
        request: dict[str, Any] = {
            "model": model,
            "max_tokens": self._max_tokens,
            "messages": conversation,
            "stream": True,
            "extra_body": self._options or None,
        }
        if system:
            request["system"] = [{"type": "text", "text": text} for text in system]
        if tools:
            request["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools
            ]
        return self._retrier.run(lambda: self._attempt(request))

    async def _attempt(self, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        parser = AnthropicStream()
        with translate_sdk_errors(anthropic, self._who):
            async with await self._client.messages.create(**request) as stream:
                async for chunk in stream:
                    for event in parser.feed(as_json(chunk)):
                        yield event
            for event in parser.end():
                yield event

    async def close(self) -> None:
        await self._client.close()


def _key(api_key: str | None, base_url: str | None) -> str:
    if api_key:
        return api_key
    if base_url:
        # Do not send ANTHROPIC_API_KEY to another server.
        return "none"
    if found := os.environ.get("ANTHROPIC_API_KEY"):
        return found
    raise SettingsInvalid("no key for Anthropic: set ANTHROPIC_API_KEY or the agent's `api_key`")

"""Anthropic: one round of its messages API, streamed, through the official client.

The same bargain as with OpenAI: the client's own retries are off, and the key is always given to it explicitly.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from threadline.agents.block_deltas import BlockDeltas
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.core.blocks import to_blocks
from threadline.core.errors import ExtraMissing, SettingsInvalid
from threadline.core.events import Event
from threadline.core.prompts import PromptMessage
from threadline.net.retry import Retrier

try:
    import anthropic

    from threadline.agents.sdk_faults import as_json, told_as_faults
except ModuleNotFoundError as exc:
    raise ExtraMissing("anthropic", "an Anthropic agent") from exc

MAX_TOKENS = 8_192
SILENCE_SECONDS = 120.0
_CONNECT_SECONDS = 10.0


class AnthropicModel:
    """`options` go into each request as they are: `thinking`, `temperature`, `cache_control` and the like."""

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = MAX_TOKENS,
        silence_seconds: float = SILENCE_SECONDS,
        options: Mapping[str, Any] | None = None,
        persistence: Retrier | None = None,
    ) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._who = "The model server" if base_url else "Anthropic"
        self._options = dict(options or {})
        self._persistence = persistence or Retrier()
        self._client = anthropic.AsyncAnthropic(
            api_key=_key(api_key, base_url),
            base_url=base_url,
            timeout=anthropic.Timeout(silence_seconds, connect=_CONNECT_SECONDS),
            max_retries=0,
        )

    def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        system, spoken = to_blocks(messages)
        model = settings.model or self._model
        if model is None:
            raise SettingsInvalid("an Anthropic agent needs a model")
        request: dict[str, Any] = {
            "model": model,
            "max_tokens": self._max_tokens,
            "messages": spoken,
            "stream": True,
            "extra_body": self._options or None,
        }
        if system:
            request["system"] = [{"type": "text", "text": text} for text in system]
        if tools:
            request["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools
            ]
        return self._persistence.run(lambda: self._attempt(request))

    async def _attempt(self, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        deltas = BlockDeltas()
        with told_as_faults(anthropic, self._who):
            async with await self._client.messages.create(**request) as stream:
                async for said in stream:
                    for event in deltas.feed(as_json(said)):
                        yield event
            for event in deltas.end():
                yield event

    async def close(self) -> None:
        await self._client.close()


def _key(api_key: str | None, base_url: str | None) -> str:
    if api_key:
        return api_key
    if base_url:
        # The environment's key is for Anthropic, not for a server of someone else's.
        return "none"
    if found := os.environ.get("ANTHROPIC_API_KEY"):
        return found
    raise SettingsInvalid("Anthropic needs a key: set ANTHROPIC_API_KEY")

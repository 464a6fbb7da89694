"""OpenAI, and every server that speaks its chat completions: one round, streamed, through the official client.

The client's own retries are off, because it cannot know whether anything was shown yet. The key is always given to it
explicitly: it must never find one in the environment and send it to somebody else's server.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from threadline.agents.chat_deltas import ChatDeltas
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.core.chat_messages import to_chat
from threadline.core.errors import ExtraMissing, SettingsInvalid
from threadline.core.events import Event
from threadline.core.prompts import PromptMessage
from threadline.net.retry import Retrier

try:
    import openai

    from threadline.agents.sdk_faults import as_json, told_as_faults
except ModuleNotFoundError as exc:
    raise ExtraMissing("openai", "an OpenAI-compatible agent") from exc

SILENCE_SECONDS = 120.0
_CONNECT_SECONDS = 10.0


class OpenAIModel:
    """`base_url` is any OpenAI-compatible server's. `options` go into each request as they are (temperature, …)."""

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        options: Mapping[str, Any] | None = None,
        with_usage: bool = True,
        alternating: bool = False,
        persistence: Retrier | None = None,
    ) -> None:
        self._model = model
        self._who = "The model server" if base_url else "OpenAI"
        self._options = dict(options or {})
        self._with_usage = with_usage
        self._alternating = alternating
        self._persistence = persistence or Retrier()
        self._client = openai.AsyncOpenAI(
            api_key=_key(api_key, base_url),
            base_url=base_url,
            timeout=openai.Timeout(silence_seconds, connect=_CONNECT_SECONDS),
            max_retries=0,
        )

    def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        request: dict[str, Any] = {
            "model": settings.model or self._model or "default",
            "messages": to_chat(messages, alternating=self._alternating),
            "stream": True,
            "extra_body": self._options or None,
        }
        if tools:
            request["tools"] = [_function(tool) for tool in tools]
        if self._with_usage:
            request["stream_options"] = {"include_usage": True}
        return self._persistence.run(lambda: self._attempt(request))

    async def _attempt(self, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        deltas = ChatDeltas()
        with told_as_faults(openai, self._who):
            async with await self._client.chat.completions.create(**request) as stream:
                async for chunk in stream:
                    for event in deltas.feed(as_json(chunk)):
                        yield event
            for event in deltas.end():
                yield event

    async def close(self) -> None:
        await self._client.close()


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
    }


def _key(api_key: str | None, base_url: str | None) -> str:
    if api_key:
        return api_key
    if base_url:
        # Local servers want none, and the environment's is not for them.
        return "none"
    if found := os.environ.get("OPENAI_API_KEY"):
        return found
    raise SettingsInvalid("OpenAI needs a key: set OPENAI_API_KEY, or base_url for a server of your own")

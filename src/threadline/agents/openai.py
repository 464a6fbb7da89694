"""OpenAI and compatible servers: one streamed round of chat completions through the official client.

The client's own retries are off, because it does not know whether the user has seen output. The key is always passed
explicitly, so that the client never sends a key from the environment to another server.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from threadline.agents.models import RoundSettings, ToolSpec
from threadline.agents.provider_streams import OpenAIStream
from threadline.core.chat_messages import to_chat
from threadline.core.errors import ExtraMissing, SettingsInvalid
from threadline.core.events import Event
from threadline.core.prompts import PromptMessage
from threadline.net.retry import Retrier

try:
    import openai

    from threadline.agents.sdk_errors import as_json, translate_sdk_errors
except ModuleNotFoundError as exc:
    raise ExtraMissing("openai", "an OpenAI-compatible agent") from exc

SILENCE_SECONDS = 120.0
"""Reasoning models can be silent for a minute before their first token."""
_CONNECT_SECONDS = 10.0


class OpenAIModel:
    """`base_url` is the address of any OpenAI-compatible server. `options` are added to each request unchanged
    (`temperature`, …). `alternating` merges messages so that roles alternate, which some chat templates require."""

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
        retrier: Retrier | None = None,
    ) -> None:
        self._model = model
        self._who = "the model server" if base_url else "OpenAI"
        self._options = dict(options or {})
        self._with_usage = with_usage
        self._alternating = alternating
        self._retrier = retrier or Retrier()
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
            "extra_body": self._merged(settings.options.for_chat(with_tools=bool(tools))) or None,
        }
        if tools:
            request["tools"] = [_function(tool) for tool in tools]
        if settings.response_format is not None:
            request["response_format"] = settings.response_format
        if self._with_usage:
            request["stream_options"] = {"include_usage": True}
        return self._retrier.run(lambda: self._attempt(request))

    def _merged(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The agent's own options, with what the request asks for in their place."""
        if "max_tokens" in self._options and "max_completion_tokens" in asked:
            # Older servers know only the old name, which the agent's settings then have.
            asked["max_tokens"] = asked.pop("max_completion_tokens")
        return {**self._options, **asked}

    async def _attempt(self, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        parser = OpenAIStream()
        with translate_sdk_errors(openai, self._who):
            async with await self._client.chat.completions.create(**request) as stream:
                async for chunk in stream:
                    for event in parser.feed(as_json(chunk)):
                        yield event
            for event in parser.end():
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
        # Do not send OPENAI_API_KEY to a local server.
        return "none"
    if found := os.environ.get("OPENAI_API_KEY"):
        return found
    raise SettingsInvalid("no key for OpenAI: set OPENAI_API_KEY, or `base_url` to use another server")

"""The bridge: accepts dispatch payloads and forwards them to an OpenAI-compatible server.

It makes any such server usable by systems that dispatch to agents over HTTP. The payload is normalised first, so that
the server always gets an array of messages. The server and its key are fixed by the operator; a caller cannot choose
them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from threadline.agents.remote import post_payload
from threadline.core import jsontext
from threadline.core.dispatch import normalize
from threadline.core.events import Event, FinalText, TextDelta, Usage
from threadline.net.addresses import parse_url
from threadline.net.retry import Retrier

SILENCE_SECONDS = 120.0


class Bridge:
    def __init__(
        self,
        upstream: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, Any] | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        retrier: Retrier | None = None,
    ) -> None:
        """`upstream` is the base URL of the server, as OpenAI clients expect it; it usually ends in `/v1`."""
        parse_url(upstream)
        self._target = parse_url(f"{upstream.rstrip('/')}/chat/completions")
        self._model = model
        self._options = dict(options or {})
        self._headers = {"accept": "text/event-stream"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._silence_seconds = silence_seconds
        self._retrier = retrier or Retrier()

    def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """The server's reply as events. InvalidMessage immediately if the payload has no message; AgentFailed later."""
        request = {
            **self._options,
            "model": self._model or _text(body.get("model")) or "default",
            "messages": normalize(body),
            "stream": True,
        }
        raw = jsontext.dump(request, "payload")
        return self._retrier.run(
            lambda: post_payload(self._target, raw, self._headers, silence_seconds=self._silence_seconds)
        )

    async def reply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The server's reply as one message."""
        text, usage = "", None
        async with aclosing(self.stream(body)) as events:
            async for event in events:
                match event:
                    case TextDelta():
                        text += event.text
                    case FinalText():
                        text = event.text
                    case Usage():
                        usage = event
        message: dict[str, Any] = {"role": "assistant", "content": text}
        return message if usage is None else {**message, "usage": msgspec.to_builtins(usage)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

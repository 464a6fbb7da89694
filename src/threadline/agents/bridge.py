"""The bridge: takes a dispatch payload, asks an OpenAI-compatible server, and gives back what it says.

It makes any such server an agent for whoever dispatches to agents over HTTP. The payload is normalised first, so that
the server always gets an array of messages, whatever spelling arrived. What the caller may not decide (the server, its
key) is fixed when the bridge is made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from threadline.agents.remote import ask
from threadline.core import jsontext
from threadline.core.dispatch import normalise
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
        persistence: Retrier | None = None,
    ) -> None:
        """`upstream` is the server's base address, as OpenAI clients take it: usually it ends in `/v1`."""
        parse_url(upstream)
        self._target = parse_url(f"{upstream.rstrip('/')}/chat/completions")
        self._model = model
        self._options = dict(options or {})
        self._headers = {"accept": "text/event-stream"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._silence_seconds = silence_seconds
        self._persistence = persistence or Retrier()

    def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """What the server says to the payload. InvalidMessage at once if there is no message in it; AgentFailed."""
        asked = {
            **self._options,
            "model": self._model or _text(body.get("model")) or "default",
            "messages": normalise(body),
            "stream": True,
        }
        request = jsontext.dump(asked, "the payload")
        return self._persistence.run(
            lambda: ask(self._target, request, self._headers, silence_seconds=self._silence_seconds)
        )

    async def reply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The same as one message."""
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
        said: dict[str, Any] = {"role": "assistant", "content": text}
        return said if usage is None else {**said, "usage": msgspec.to_builtins(usage)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

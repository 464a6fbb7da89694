"""An agent behind HTTP: it is sent the dispatch payload and answers with JSON or with server-sent events.

It keeps its own tools; what it says of them is shown. The turn's id goes along as the idempotency key, so an agent that
is asked twice about one turn can know it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from threadline.agents.limits import Limits
from threadline.agents.remote_replies import error_words, read_event, read_json
from threadline.agents.replies import bounded
from threadline.core import jsontext
from threadline.core.dispatch import payload
from threadline.core.events import Event
from threadline.core.prompts import Prompt
from threadline.net.addresses import Target, parse_url
from threadline.net.http_client import HttpReply, post
from threadline.net.retry import Fault, Retrier, status_fault
from threadline.net.sse import SseReader
from threadline.ports import AgentServices

LONGEST_JSON = 4_194_304


class RemoteAgent:
    """`public_only` refuses addresses inside the operator's network: for agents that tenants set up."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        silence_seconds: float = 120.0,
        public_only: bool = False,
        limits: Limits | None = None,
        persistence: Retrier | None = None,
    ) -> None:
        self._target = parse_url(url)
        self._headers = {"accept": "text/event-stream, application/json", **(headers or {})}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._silence_seconds = silence_seconds
        self._public_only = public_only
        self._limits = limits
        self._persistence = persistence or Retrier()

    def run(self, prompt: Prompt, services: AgentServices) -> AsyncGenerator[Event, None]:
        body = jsontext.dump(payload(prompt), "the dispatch payload")
        headers = dict(self._headers)
        if prompt.turn_id is not None:
            headers["idempotency-key"] = prompt.turn_id
        return bounded(self._persistence.run(lambda: self._attempt(body, headers)), prompt, self._limits)

    async def close(self) -> None:
        """Each answer has a connection of its own."""

    def _attempt(self, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[Event, None]:
        return ask(self._target, body, headers, silence_seconds=self._silence_seconds, public_only=self._public_only)


async def ask(
    target: Target, body: bytes, headers: Mapping[str, str], *, silence_seconds: float, public_only: bool = False
) -> AsyncGenerator[Event, None]:
    """One attempt: the body is posted and the answer read, as JSON or as a stream. Fault where that fails."""
    async with post(target, body, headers, silence_seconds=silence_seconds, public_only=public_only) as answer:
        if not 200 <= answer.status < 300:
            raise await _refusal(answer)
        if "text/event-stream" not in answer.headers.get("content-type", ""):
            for event in read_json(await _whole(answer, LONGEST_JSON)):
                yield event
            return
        said = False
        async with aclosing(_stream(answer)) as events:
            async for event in events:
                said = True
                yield event
        if not said:
            raise Fault("The agent said nothing that could be understood.")


async def _stream(answer: HttpReply) -> AsyncGenerator[Event, None]:
    reader = SseReader()
    async for piece in answer.body:
        for sent in reader.feed(piece):
            events = read_event(sent)
            if events is None:
                return
            for event in events:
                yield event


async def _whole(answer: HttpReply, limit: int) -> bytes:
    raw = b""
    async for piece in answer.body:
        raw += piece
        if len(raw) > limit:
            raise Fault(f"The agent's answer is longer than {limit:,} bytes.")
    return raw


async def _refusal(answer: HttpReply) -> Fault:
    if 300 <= answer.status < 400:
        return Fault(f"The agent answered with a redirect (HTTP {answer.status}), which is not followed.")
    words = error_words(await _whole(answer, LONGEST_JSON))
    return status_fault("The agent", answer.status, words, answer.headers)

"""The messaging platforms: Telegram, which cannot be asked what it has taken, and Slack, which can.

They deliver webhooks until they are acknowledged, in any order and more than once, and take replies without recognising
a repeat. A request that was sent arrives even if its sender crashes; its response may arrive too late, or never.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs

from tests.simulation.event_loop import OWNER, SimulatedLoop
from tests.simulation.faults import Faults
from tests.simulation.questions import Chat, ChatSurface
from threadline.core.platform_messages import Ambiguous, HttpRequest, HttpResponse, Transient

SECRETS: dict[ChatSurface, dict[str, str]] = {
    "telegram": {"bot_token": "123456:simulated", "webhook_secret": "simulated-secret"},
    "slack": {"bot_token": "xoxb-simulated", "signing_secret": "simulated-secret"},
}


class Taken(NamedTuple):
    """A message that a person got."""

    chat: Chat
    text: str
    troubles: int
    """How many faults had occurred when it arrived."""
    is_answered: bool
    """Whether the response was sent in time."""


class Surroundings(Protocol):
    loop: SimulatedLoop
    faults: Faults
    troubles: int

    def note(self, what: str) -> None: ...

    def inject(self, kind: str, what: str) -> None: ...


# What shows that a reply is being written; nothing of it stays in a conversation.
_SIGNS = frozenset(("sendChatAction", "sendMessageDraft", "assistant.threads.setStatus"))


class SimulatedPlatforms:
    """Implements `ports.Http`."""

    def __init__(self, world: Surroundings) -> None:
        self.taken: list[Taken] = []
        self._posted: dict[str, list[dict[str, Any]]] = {}
        """What Slack has in each channel."""
        self._world = world
        self._context = contextvars.copy_context()
        """The world's: what travels is lost with neither end."""

    def _take(self, request: HttpRequest, *, is_answered: bool) -> HttpResponse:
        body: dict[str, Any] = json.loads(request.body)
        chat = Chat("slack", body["channel"]) if "channel" in body else Chat("telegram", str(body["chat_id"]))
        self.taken.append(Taken(chat, body["text"], self._world.troubles, is_answered))
        self._world.note(f"{chat.surface} {chat.address} gets {body['text']!r}")
        if chat.surface == "slack":
            posted = {"ts": f"1.{len(self.taken):06}", "metadata": body.get("metadata")}
            self._posted.setdefault(chat.address, []).append(posted)
            return _response(200, {"ok": True, "channel": chat.address, "ts": posted["ts"]})
        return _response(200, {"ok": True, "result": {"message_id": len(self.taken), "date": 0}})

    async def send(self, request: HttpRequest, *, seconds: float = 20.0) -> HttpResponse | Transient | Ambiguous:
        owner = OWNER.get()
        if owner is not None and not owner.is_alive:
            # Code of a crashed process that has not been suspended yet: nothing of it leaves the machine.
            await asyncio.Event().wait()
        loop, chance, fate = self._world.loop, self._world.loop.chance, self._world.faults.http_fate()
        if fate != "answered":
            self._world.inject("platform faults", f"a request to the platform is {fate}")
        if fate == "refused":
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            return Transient("no connection")
        responded: asyncio.Future[HttpResponse] = loop.create_future()

        def arrive() -> None:
            has_crashed = owner is not None and not owner.is_alive
            response = self._respond(request, fate, is_awaited=not has_crashed)
            if response is not None:
                loop.call_later(_response_seconds(fate, seconds, chance), respond, response)

        def respond(response: HttpResponse) -> None:
            if not responded.done():
                responded.set_result(response)

        loop.call_later(chance.uniform(0.001, 0.3), arrive, context=self._context)
        try:
            async with asyncio.timeout(seconds):
                return await responded
        except TimeoutError:
            return Ambiguous("no response in time")

    def _respond(self, request: HttpRequest, fate: str, *, is_awaited: bool) -> HttpResponse | None:
        match fate:
            case "lost":
                return None
            case "error":
                return HttpResponse(502, {}, b"<html>Bad Gateway</html>")
            case "limited":
                asked = {"ok": False, "description": "Too Many Requests", "parameters": {"retry_after": 2}}
                return _response(429, asked)
        if request.url.endswith("/conversations.history"):
            (channel,) = parse_qs(request.body.decode())["channel"]
            return _response(200, {"ok": True, "messages": self._posted.get(channel, [])})
        if request.url.rpartition("/")[2] in _SIGNS:
            return _response(200, {"ok": True, "result": True})
        response = self._take(request, is_answered=fate == "answered" and is_awaited)
        return None if fate == "silent" else response


def _response(status: int, value: object) -> HttpResponse:
    return HttpResponse(status, {"content-type": "application/json"}, json.dumps(value).encode())


def _response_seconds(fate: str, limit: float, chance: Any) -> float:
    return float(limit * chance.uniform(0.5, 2.0) if fate == "slow" else chance.uniform(0.001, 0.3))


def webhook(chat: Chat, number: int, text: str, sent_at: float) -> bytes:
    """What a person wrote to the bot, as the body of a webhook. `sent_at` is in seconds since 1970."""
    if chat.surface == "slack":
        said = {"type": "message", "channel": chat.address, "channel_type": "im", "user": chat.sender, "text": text}
        event = {**said, "ts": f"{int(sent_at)}.{number:06}"}
        return json.dumps({"type": "event_callback", "event_id": f"Ev{number}", "event": event}).encode()
    person = {"id": int(chat.sender), "is_bot": False, "first_name": "Ada"}
    place = {"id": int(chat.address), "type": "private"}
    message = {"message_id": number, "date": int(sent_at), "from": person, "chat": place, "text": text}
    return json.dumps({"update_id": 800_000_000 + number, "message": message}).encode()

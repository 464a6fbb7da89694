"""A stand-in for Slack: signed events out, `chat.postMessage` and `auth.test` in."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from threadline.channels.slack import signature
from threadline.core.turns import Surface
from threadline.ports import Clock
from threadline.testing.platforms.loopback import Asked, Told
from threadline.testing.platforms.platform import FakePlatform, Fault, fall_silent, told

BOT_USER = "U0THREADLN"
TEAM = "T0FAKE"


class FakeSlack(FakePlatform):
    """Everybody has a direct conversation with the bot; `mention` speaks to it in a channel."""

    platform: ClassVar[Surface] = "slack"
    person: ClassVar[str] = "U1001"

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        port: int = 0,
        signing_secret: str = "fake-signing-secret",
        bot_token: str = "xoxb-fake",
    ) -> None:
        super().__init__(clock, port=port)
        self._signing_secret = signing_secret
        self._bot_token = bot_token
        self._written = 0
        self._posted: dict[str, str] = {}

    @property
    def secrets(self) -> dict[str, str]:
        return {"signing_secret": self._signing_secret, "bot_token": self._bot_token}

    @property
    def api(self) -> str:
        return f"{self._server.url}/api"

    def account(self, name: str) -> str:
        return f"U{super().account(name)}"

    def sign(self, body: bytes) -> dict[str, str]:
        stamp = str(int(self.clock.now().timestamp()))
        return {
            "x-slack-request-timestamp": stamp,
            "x-slack-signature": signature(self._signing_secret, stamp, body),
        }

    def write(self, text: str, sender: str | None = None, **event: Any) -> bytes:
        sender = sender or self.person
        said = {"type": "message", "channel": direct(sender), "channel_type": "im", "user": sender, "text": text}
        return self.event({**said, "ts": self._ts(), "team": TEAM, **event})

    def mention(self, text: str, sender: str = person, channel: str = "C0GENERAL") -> tuple[bytes, bytes]:
        """What Slack sends for one text in a channel: a `message` and an `app_mention`."""
        said = {"channel": channel, "user": sender, "text": f"<@{BOT_USER}> {text}", "ts": self._ts(), "team": TEAM}
        message = {"type": "message", "channel_type": "channel", **said}
        return self.event(message), self.event({"type": "app_mention", **said})

    def event(self, event: dict[str, Any]) -> bytes:
        self._written += 1
        envelope = {
            "token": "unused",
            "team_id": TEAM,
            "api_app_id": "A0FAKE",
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{self._written:08}",
            "event_time": int(self.clock.now().timestamp()),
            "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
        }
        return json.dumps(envelope).encode()

    async def shake_hands(self) -> Told:
        """What Slack does when a request URL is entered."""
        asked = {"token": "unused", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}
        return await self.deliver(json.dumps({**asked, "type": "url_verification"}).encode())

    def _ts(self) -> str:
        self._written += 1
        return f"{int(self.clock.now().timestamp())}.{self._written:06}"

    async def _answer(self, asked: Asked) -> Told:
        if asked.headers.get("authorization") != f"Bearer {self._bot_token}":
            return told({"ok": False, "error": "invalid_auth"})
        match asked.path.removeprefix("/api/"):
            case "chat.postMessage":
                return await self._post(_arguments(asked))
            case "auth.test":
                return told({"ok": True, "team_id": TEAM, "user_id": BOT_USER, "bot_id": "B0FAKE", "url": self.api})
        return told({"ok": False, "error": "unknown_method"})

    async def _post(self, message: dict[str, Any]) -> Told:
        fault = self._fault()
        if fault is not None and fault.kind != "silent":
            return _refusal(fault)
        channel, text = str(message.get("channel", "")), str(message.get("text", ""))
        if not channel:
            return told({"ok": False, "error": "channel_not_found"})
        if not text:
            return told({"ok": False, "error": "no_text"})
        key = str(message.get("client_msg_id") or self._written)
        # A second message under the same key is the first one.
        if key not in self._posted:
            self._posted[key] = self._ts()
            thread_ts = message.get("thread_ts")
            await self._take(f"{channel}:{thread_ts}" if thread_ts else channel, text, message)
        if fault is not None:
            return await fall_silent()
        posted = {"type": "message", "user": BOT_USER, "text": text, "ts": self._posted[key]}
        return told({"ok": True, "channel": channel, "ts": self._posted[key], "message": posted})


def direct(sender: str) -> str:
    """The id of a user's conversation with the bot."""
    return f"D{sender}"


def _arguments(asked: Asked) -> dict[str, Any]:
    if asked.headers.get("content-type", "").startswith("application/json"):
        return dict(json.loads(asked.body))
    return dict(asked.form())


def _refusal(fault: Fault) -> Told:
    if fault.kind == "rate_limited":
        return told({"ok": False, "error": "ratelimited"}, 429, retry_after=str(fault.retry_after))
    if fault.kind == "server_error":
        return Told(503, b"upstream connect error", {"content-type": "text/plain"})
    return told({"ok": False, "error": "is_archived"})

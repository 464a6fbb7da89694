"""A stand-in for Telegram's Bot API: updates out by webhook or getUpdates, `sendMessage` in."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, ClassVar

from threadline.core.turns import Surface
from threadline.ports import Clock
from threadline.testing.platforms.loopback import Asked, Told
from threadline.testing.platforms.platform import FakePlatform, Fault, fall_silent, told

BOT = {"id": 123456, "is_bot": True, "first_name": "Threadline", "username": "threadline_fake_bot"}
_LONGEST_TEXT = 4096


class FakeTelegram(FakePlatform):
    """Without a webhook, what people write waits for getUpdates: use `post`."""

    platform: ClassVar[Surface] = "telegram"
    person: ClassVar[str] = "1001"

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        port: int = 0,
        bot_token: str = "123456:fake",
        webhook_secret: str = "fake-webhook-secret",
    ) -> None:
        super().__init__(clock, port=port)
        self._bot_token = bot_token
        self._webhook_secret = webhook_secret
        self._numbers: dict[int, int] = {}
        self._updates = 0
        self.waiting: list[dict[str, Any]] = []

    @property
    def secrets(self) -> dict[str, str]:
        return {"bot_token": self._bot_token, "webhook_secret": self._webhook_secret}

    @property
    def api(self) -> str:
        return self._server.url

    def sign(self, body: bytes) -> dict[str, str]:
        return {"x-telegram-bot-api-secret-token": self._webhook_secret}

    def write(self, text: str, sender: str | None = None, **message: Any) -> bytes:
        sender = sender or self.person
        person = {"id": int(sender), "is_bot": False, "first_name": "Ada"}
        chat = {"id": int(sender), "type": "private", "first_name": "Ada"}
        said = {"chat": chat, "from": person, "text": text, "entities": _commands(text), **message}
        said = {"message_id": self._number(said["chat"]["id"]), "date": int(self.clock.now().timestamp()), **said}
        return self.update(message=said)

    def update(self, **content: Any) -> bytes:
        self._updates += 1
        return json.dumps({"update_id": 800_000_000 + self._updates, **content}).encode()

    async def post(self, text: str, sender: str | None = None) -> None:
        """Queues an update for the next poll."""
        async with self._changed:
            self.waiting.append(json.loads(self.write(text, sender)))
            self._changed.notify_all()

    def _number(self, chat_id: int) -> int:
        self._numbers[chat_id] = self._numbers.get(chat_id, 0) + 1
        return self._numbers[chat_id]

    async def _answer(self, asked: Asked) -> Told:
        token, _, method = asked.path.removeprefix("/bot").rpartition("/")
        if token != self._bot_token:
            return _error(401, "Unauthorized")
        given = _parameters(asked)
        match method:
            case "sendMessage":
                return await self._send(given)
            case "getUpdates":
                return await self._give_updates(given)
            case "setWebhook":
                self.webhook = str(given.get("url", "")) or None
                self._webhook_secret = str(given.get("secret_token", self._webhook_secret))
                return told({"ok": True, "result": True, "description": "Webhook was set"})
            case "deleteWebhook":
                self.webhook = None
                return told({"ok": True, "result": True, "description": "Webhook was deleted"})
            case "getWebhookInfo":
                info = {"has_custom_certificate": False, "pending_update_count": len(self.waiting)}
                return told({"ok": True, "result": {"url": self.webhook or "", **info}})
            case "getMe":
                abilities = {"can_join_groups": True, "can_read_all_group_messages": False}
                return told({"ok": True, "result": {**BOT, **abilities, "supports_inline_queries": False}})
        return _error(404, "Not Found")

    async def _send(self, given: dict[str, Any]) -> Told:
        fault = self._fault()
        if fault is not None and fault.kind != "silent":
            return _refusal(fault)
        chat_id, text = int(given["chat_id"]), str(given.get("text", ""))
        if chat_id not in self._numbers:
            return _error(400, "Bad Request: chat not found")
        if not text.strip():
            return _error(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > _LONGEST_TEXT:
            return _error(400, "Bad Request: message is too long")
        topic = given.get("message_thread_id")
        await self._take(f"{chat_id}:{topic}" if topic else str(chat_id), text, given)
        if fault is not None:
            return await fall_silent()
        message = {"message_id": self._number(chat_id), "date": int(self.clock.now().timestamp()), "from": BOT}
        chat = {"id": chat_id, "type": "private" if chat_id > 0 else "supergroup"}
        entities = {"entities": given["entities"]} if "entities" in given else {}
        return told({"ok": True, "result": {**message, "chat": chat, "text": text, **entities}})

    async def _give_updates(self, given: dict[str, Any]) -> Told:
        if self.webhook is not None:
            return _error(409, "Conflict: can't use getUpdates method while webhook is active")
        offset = int(given.get("offset", 0))
        async with self._changed:
            self.waiting = [update for update in self.waiting if update["update_id"] >= offset]
            # getUpdates answers with what there is when the caller's own timeout ends, as the platform does.
            with suppress(TimeoutError):
                async with asyncio.timeout(float(given.get("timeout", 0))):
                    await self._changed.wait_for(lambda: bool(self.waiting))
            return told({"ok": True, "result": self.waiting[: int(given.get("limit", 100))]})


def _commands(text: str) -> list[dict[str, Any]]:
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    return [{"type": "bot_command", "offset": 0, "length": len(word)}] if word.startswith("/") and word[1:] else []


def _parameters(asked: Asked) -> dict[str, Any]:
    """As JSON, or as a form whose structured values are JSON: clients do either."""
    if asked.headers.get("content-type", "").startswith("application/json"):
        return dict(json.loads(asked.body))
    return {name: _value(value) for name, value in asked.form().items()}


def _value(text: str) -> Any:
    return json.loads(text) if text[:1] in ("[", "{") else text


def _refusal(fault: Fault) -> Told:
    if fault.kind == "rate_limited":
        asked = {"parameters": {"retry_after": fault.retry_after}}
        return _error(429, f"Too Many Requests: retry after {fault.retry_after}", **asked)
    if fault.kind == "server_error":
        return Told(502, b"<html>Bad Gateway</html>", {"content-type": "text/html"})
    return _error(403, "Forbidden: bot was blocked by the user")


def _error(status: int, description: str, **more: Any) -> Told:
    return told({"ok": False, "error_code": status, "description": description, **more}, status)

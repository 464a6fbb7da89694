"""A stand-in for Telegram's Bot API: updates out by webhook or getUpdates; messages, edits and answers to
buttons in. A button carries at most 64 bytes, and a press can be answered for a short while only."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from contextlib import suppress
from typing import Any, ClassVar

from threadline.core.turns import Surface
from threadline.ports import Clock
from threadline.testing.platforms.loopback import Asked, Told
from threadline.testing.platforms.platform import FakePlatform, Fault, Reply, fall_silent, told

BOT = {"id": 123456, "is_bot": True, "first_name": "Threadline", "username": "threadline_fake_bot"}
_LONGEST_TEXT = 4096
# Telegram publishes no number; clients give up after about this long.
_QUERY_LIFETIME = dt.timedelta(seconds=15)


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
        self.has_privacy_mode = True
        self.webhook_info: dict[str, Any] = {}
        """What getWebhookInfo adds: the last error, the kinds of updates."""
        self._messages: dict[tuple[int, int], dict[str, Any]] = {}
        self._queries: dict[str, dt.datetime] = {}
        """When each button was pressed that was not answered yet."""

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

    def edit(self, body: bytes, text: str) -> bytes:
        """What Telegram sends when the sender edits a message that `write` made."""
        now = int(self.clock.now().timestamp())
        return self.update(edited_message={**json.loads(body)["message"], "text": text, "edit_date": now})

    def update(self, **content: Any) -> bytes:
        self._updates += 1
        return json.dumps({"update_id": 800_000_000 + self._updates, **content}).encode()

    def press(self, question: Reply, label: str, sender: str | None = None) -> bytes:
        chat_id, message_id = int(question.recipient.partition(":")[0]), int(question.message_id)
        rows = question.payload["reply_markup"]["inline_keyboard"]
        (button,) = [each for row in rows for each in row if each["text"] == label]
        self._updates += 1
        query_id = str(4_000_000_000 + self._updates)
        self._queries[query_id] = self.clock.now()
        person = {"id": int(sender or self.person), "is_bot": False, "first_name": "Ada"}
        pressed = {"id": query_id, "from": person, "message": self._messages[chat_id, message_id]}
        return self.update(callback_query={**pressed, "chat_instance": "17", "data": button["callback_data"]})

    async def post(self, text: str, sender: str | None = None) -> None:
        """Queues an update for the next poll."""
        await self.post_update(self.write(text, sender))

    async def post_update(self, body: bytes) -> None:
        async with self._changed:
            self.waiting.append(json.loads(body))
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
            case "editMessageText":
                return await self._edit_text(given)
            case "sendChatAction":
                await self._show(_place(given))
                return told({"ok": True, "result": True})
            case "sendMessageDraft":
                return await self._draft(given)
            case "answerCallbackQuery":
                return await self._answer_query(given)
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
                info = {"has_custom_certificate": False, "pending_update_count": len(self.waiting), **self.webhook_info}
                return told({"ok": True, "result": {"url": self.webhook or "", **info}})
            case "getMe":
                abilities = {"can_join_groups": True, "can_read_all_group_messages": not self.has_privacy_mode}
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
        keyboard = given.get("reply_markup", {}).get("inline_keyboard", [])
        if any(not 0 < len(each["callback_data"].encode()) <= 64 for row in keyboard for each in row):
            return _error(400, "Bad Request: BUTTON_DATA_INVALID")
        topic = given.get("message_thread_id")
        number = self._number(chat_id)
        message = {"message_id": number, "date": int(self.clock.now().timestamp()), "from": BOT}
        chat = {"id": chat_id, "type": "private" if chat_id > 0 else "supergroup"}
        more: dict[str, Any] = {name: given[name] for name in ("entities", "reply_markup") if name in given}
        result: dict[str, Any] = {**message, "chat": chat, "text": text, **more}
        self._messages[chat_id, number] = result
        await self._take(f"{chat_id}:{topic}" if topic else str(chat_id), text, given, str(number))
        if fault is not None:
            return await fall_silent()
        return told({"ok": True, "result": result})

    async def _draft(self, given: dict[str, Any]) -> Told:
        """A preview in a private chat, which goes away by itself."""
        if not self.has_drafts or int(given["chat_id"]) < 0:
            return _error(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        if int(given["draft_id"]) == 0 or len(given["text"].encode("utf-16-le")) // 2 > _LONGEST_TEXT:
            return _error(400, "Bad Request: DRAFT_INVALID")
        await self._show(_place(given), given["text"])
        return told({"ok": True, "result": True})

    async def _edit_text(self, given: dict[str, Any]) -> Told:
        fault = self._fault()
        if fault is not None:
            return _refusal(fault)
        found = self._messages.get((int(given["chat_id"]), int(given["message_id"])))
        if found is None:
            return _error(400, "Bad Request: message to edit not found")
        markup = given.get("reply_markup")
        if (found["text"], found.get("reply_markup")) == (given["text"], markup):
            return _error(400, "Bad Request: message is not modified: specified new message content and reply markup")
        found["text"] = given["text"]
        found.pop("reply_markup", None)
        await self._edit(str(found["message_id"]), given["text"], has_buttons=markup is not None)
        return told({"ok": True, "result": found})

    async def _answer_query(self, given: dict[str, Any]) -> Told:
        query_id, text = str(given.get("callback_query_id", "")), str(given.get("text", ""))
        pressed_at = self._queries.pop(query_id, None)
        if pressed_at is None or self.clock.now() - pressed_at > _QUERY_LIFETIME:
            return _error(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        if len(text) > 200:
            return _error(400, "Bad Request: MESSAGE_TOO_LONG")
        await self._notice(query_id, text)
        return told({"ok": True, "result": True})

    async def _give_updates(self, given: dict[str, Any]) -> Told:
        if self.webhook is not None:
            return _error(409, "Conflict: can't use getUpdates method while webhook is active")
        offset = int(given.get("offset", 0))
        allowed = given.get("allowed_updates") or []
        if allowed:
            self.waiting = [each for each in self.waiting if any(kind in each for kind in allowed)]
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


def _place(given: dict[str, Any]) -> str:
    topic = given.get("message_thread_id")
    return f"{given['chat_id']}:{topic}" if topic else str(given["chat_id"])


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

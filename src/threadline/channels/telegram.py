"""Telegram: updates of the Bot API in, by webhook or by asking, `sendMessage` out.

A message's number counts within its chat, so its key is both. Replies carry entities instead of marks: the text is
sent as it is, and what is bold is said beside it, by offsets in UTF-16 units.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from threadline.channels import markdown
from threadline.channels.json_reader import (
    answered,
    header,
    known,
    load,
    moment,
    refused,
    require_equal,
    sendable,
    shaped,
)
from threadline.channels.telegram_entities import compose, measure
from threadline.channels.telegram_messages import Message, in_words
from threadline.channels.text_split import Size, split
from threadline.core import jsontext
from threadline.core.errors import NotFound, SettingsInvalid
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    Delivery,
    HttpRequest,
    HttpResponse,
    Ignored,
    IgnoredReason,
    Outcome,
    Permanent,
    Polled,
    Sent,
    Transient,
)
from threadline.core.turns import Surface

API = "https://api.telegram.org"
TEXT_LIMIT = Size(4096, ranges=100)
UPDATES_AT_ONCE = 100

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,100}")
_RECIPIENT = re.compile(r"(-?[0-9]{1,20})(?::([0-9]{1,20}))?")
_KINDS: dict[str, IgnoredReason] = {
    "edited_message": "edit",
    "edited_channel_post": "edit",
    "edited_business_message": "edit",
    "deleted_business_messages": "deletion",
    "my_chat_member": "membership",
    "chat_member": "membership",
    "chat_join_request": "membership",
    "channel_post": "unaddressed",
}
_WANTED = ["message", "edited_message", "my_chat_member"]


class _Parameters(msgspec.Struct):
    retry_after: float | None = None


class _SentMessage(msgspec.Struct):
    message_id: int


class _Answer(msgspec.Struct):
    ok: bool
    description: str = ""
    result: Any = None
    parameters: _Parameters | None = None

    @property
    def retry_after(self) -> float | None:
        return self.parameters.retry_after if self.parameters else None


class _Numbered(msgspec.Struct):
    update_id: int


class Telegram:
    platform: Surface = "telegram"
    secret_names: Mapping[str, str] = {
        "bot_token": "what @BotFather gave you: digits, a colon, letters",
        "webhook_secret": "a word of your own of letters, digits, _ and -, the same that you give to setWebhook",
    }

    def __init__(self, api: str = API) -> None:
        self._api = api.rstrip("/")

    def verify(
        self, secrets: Mapping[str, str], headers: Sequence[tuple[str, str]], body: bytes, now: dt.datetime
    ) -> None:
        secret = known(secrets, "webhook_secret")
        require_equal(header(headers, "x-telegram-bot-api-secret-token"), secret)

    def greet(self, secrets: Mapping[str, str], query: Mapping[str, str]) -> str:
        raise NotFound("handshake", self.platform)

    def read(self, body: bytes) -> Delivery:
        return _read_update(load(body))

    def render(self, text: str) -> list[str]:
        pieces = split(markdown.read(text), measure, TEXT_LIMIT)
        return [jsontext.dump(compose(piece)).decode() for piece in pieces]

    def request(self, secrets: Mapping[str, str], recipient: str, payload: str, key: str) -> HttpRequest:
        where = _RECIPIENT.fullmatch(recipient)
        if where is None:
            raise SettingsInvalid(f"{recipient!r} is no Telegram chat")
        message = {"chat_id": int(where[1]), **jsontext.parse(payload, "payload")}
        if where[2]:
            message["message_thread_id"] = int(where[2])
        # As with Slack: nobody fetches an address because an agent wrote it.
        message["link_preview_options"] = {"is_disabled": True}
        return self._call(secrets, "sendMessage", message)

    def judge(self, response: HttpResponse) -> Outcome:
        answer = answered(response, _Answer)
        if answer is None:
            broken = f"http_{response.status}"
            return Ambiguous("the answer could not be read") if response.status == 200 else refused(response, broken)
        if answer.ok:
            sent = shaped(answer.result, _SentMessage)
            return Sent(str(sent.message_id) if sent else None)
        return _refused(response, answer)

    def poll(self, secrets: Mapping[str, str], after: int, wait_seconds: int) -> HttpRequest:
        asked = {"timeout": wait_seconds, "limit": UPDATES_AT_ONCE, "allowed_updates": _WANTED}
        return self._call(secrets, "getUpdates", {**asked, "offset": after + 1} if after else asked)

    def polled(self, response: HttpResponse) -> Polled | Transient | Permanent:
        answer = answered(response, _Answer)
        if answer is None:
            return Transient(f"http_{response.status}")
        if response.status == 409:
            # Somebody else asks for this bot, or a webhook is set: an operator can end either.
            return Transient(answer.description[:300])
        if not answer.ok:
            return _refused(response, answer)
        updates = answer.result if isinstance(answer.result, list) else []
        numbers = [update.update_id for value in updates if (update := shaped(value, _Numbered))]
        return Polled(tuple(map(_read_update, updates)), max(numbers, default=None))

    def _call(self, secrets: Mapping[str, str], method: str, body: dict[str, Any]) -> HttpRequest:
        token = sendable(secrets, "bot_token")
        if not _TOKEN.fullmatch(token):
            raise SettingsInvalid("bot_token is not what @BotFather gives: digits, a colon, letters")
        url = f"{self._api}/bot{token}/{method}"
        return HttpRequest("POST", url, {"content-type": "application/json"}, jsontext.dump(body, "payload"))


def _refused(response: HttpResponse, answer: _Answer) -> Transient | Permanent:
    reason = answer.description[:300] or f"http_{response.status}"
    found = refused(response, reason)
    if isinstance(found, Transient) and answer.retry_after is not None:
        return Transient(reason, answer.retry_after)
    return found


def _read_update(update: Any) -> Delivery:
    if not isinstance(update, dict) or shaped(update, _Numbered) is None:
        return Delivery(ignored=(Ignored("broken", "update"),))
    if "message" not in update:
        kind = next((name for name in update if name != "update_id"), "nothing")
        return Delivery(ignored=(Ignored(_KINDS.get(kind, "unknown"), kind[:64]),))
    found = _read_message(shaped(update["message"], Message))
    return Delivery(arrivals=(found,)) if isinstance(found, Arrival) else Delivery(ignored=(found,))


def _read_message(message: Message | None) -> Arrival | Ignored:
    sent_at = moment(message.date) if message else None
    if message is None or sent_at is None:
        return Ignored("broken", "message")
    if message.sender is None or message.sender_chat is not None:
        return Ignored("unaddressed", "written in the name of a chat")
    if message.sender.is_bot:
        return Ignored("bot")
    text = in_words(message)
    if isinstance(text, Ignored):
        return text
    place = str(message.chat.id)
    topic = message.message_thread_id if message.is_topic_message else None
    recipient = f"{place}:{topic}" if topic else place
    if not _RECIPIENT.fullmatch(recipient):
        return Ignored("broken", "chat")
    answered_message = message.reply_to_message
    return Arrival(
        platform="telegram",
        key=f"{place}:{message.message_id}",
        sender=str(message.sender.id),
        place=place,
        recipient=recipient,
        text=text,
        sent_at=sent_at,
        shared=message.chat.type != "private",
        reply_to=f"{place}:{answered_message.message_id}" if answered_message else None,
    )

"""Telegram codec: updates of the Bot API in, by webhook or polling, `sendMessage` out.

Message ids count within a chat, so a message's key is the chat and the id. Replies use entities instead of marks: the
text is sent unchanged, with the ranges that are bold beside it, in UTF-16 units.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from threadline.channels import markdown
from threadline.channels.platform_payloads import (
    convert_or_none,
    failure_for_status,
    parse_body,
    parse_json,
    require_equal,
    require_secret,
    require_sendable_secret,
    single_header,
    time_from_timestamp,
)
from threadline.channels.telegram_entities import compose, measure
from threadline.channels.telegram_messages import Message, message_text
from threadline.channels.text_split import Size, split
from threadline.core import jsontext
from threadline.core.errors import NotFound, SettingsInvalid, quote
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
UPDATES_PER_POLL = 100

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
_ALLOWED_UPDATES = ["message", "edited_message", "my_chat_member"]


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
        "bot_token": "the token from @BotFather: digits, a colon, letters",
        "webhook_secret": "a random word of letters, digits, _ and -, the same as in setWebhook",
    }

    def __init__(self, api: str = API) -> None:
        self._api = api.rstrip("/")

    def verify(
        self, secrets: Mapping[str, str], headers: Sequence[tuple[str, str]], body: bytes, now: dt.datetime
    ) -> None:
        secret = require_secret(secrets, "webhook_secret")
        require_equal(single_header(headers, "x-telegram-bot-api-secret-token"), secret)

    def answer_handshake(self, secrets: Mapping[str, str], query: Mapping[str, str]) -> str:
        raise NotFound("handshake", self.platform)

    def parse_webhook(self, body: bytes) -> Delivery:
        return _read_update(parse_json(body))

    def render(self, text: str) -> list[str]:
        pieces = split(markdown.parse_markdown(text), measure, TEXT_LIMIT)
        return [jsontext.dump(compose(piece)).decode() for piece in pieces]

    def build_request(self, secrets: Mapping[str, str], recipient: str, payload: str, key: str) -> HttpRequest:
        where = _RECIPIENT.fullmatch(recipient)
        if where is None:
            raise SettingsInvalid(f"recipient must be a Telegram chat id, got {quote(recipient)}")
        message = {"chat_id": int(where[1]), **jsontext.parse(payload, "payload")}
        if where[2]:
            message["message_thread_id"] = int(where[2])
        # No previews: Telegram would fetch any URL that an attacker made the agent write.
        message["link_preview_options"] = {"is_disabled": True}
        return self._call(secrets, "sendMessage", message)

    def parse_response(self, response: HttpResponse) -> Outcome:
        answer = parse_body(response, _Answer)
        if answer is None:
            broken = f"http_{response.status}"
            return (
                Ambiguous("the response could not be read")
                if response.status == 200
                else failure_for_status(response, broken)
            )
        if answer.ok:
            sent = convert_or_none(answer.result, _SentMessage)
            return Sent(str(sent.message_id) if sent else None)
        return _refused(response, answer)

    def build_poll_request(self, secrets: Mapping[str, str], after: int, wait_seconds: int) -> HttpRequest:
        parameters = {"timeout": wait_seconds, "limit": UPDATES_PER_POLL, "allowed_updates": _ALLOWED_UPDATES}
        return self._call(secrets, "getUpdates", {**parameters, "offset": after + 1} if after else parameters)

    def parse_poll_response(self, response: HttpResponse) -> Polled | Transient | Permanent:
        answer = parse_body(response, _Answer)
        if answer is None:
            return Transient(f"http_{response.status}")
        if response.status == 409:
            # Another process polls this bot, or a webhook is set; the operator can end both.
            return Transient(answer.description[:300])
        if not answer.ok:
            return _refused(response, answer)
        updates = answer.result if isinstance(answer.result, list) else []
        numbers = [update.update_id for value in updates if (update := convert_or_none(value, _Numbered))]
        return Polled(tuple(map(_read_update, updates)), max(numbers, default=None))

    def _call(self, secrets: Mapping[str, str], method: str, body: dict[str, Any]) -> HttpRequest:
        token = require_sendable_secret(secrets, "bot_token")
        if not _TOKEN.fullmatch(token):
            # The token is a secret, so it is not quoted.
            raise SettingsInvalid("bot_token must be the token from @BotFather: digits, a colon, letters")
        url = f"{self._api}/bot{token}/{method}"
        return HttpRequest("POST", url, {"content-type": "application/json"}, jsontext.dump(body, "payload"))


def _refused(response: HttpResponse, answer: _Answer) -> Transient | Permanent:
    reason = answer.description[:300] or f"http_{response.status}"
    found = failure_for_status(response, reason)
    if isinstance(found, Transient) and answer.retry_after is not None:
        return Transient(reason, answer.retry_after)
    return found


def _read_update(update: Any) -> Delivery:
    if not isinstance(update, dict) or convert_or_none(update, _Numbered) is None:
        return Delivery(ignored=(Ignored("broken", "update"),))
    if "message" not in update:
        kind = next((name for name in update if name != "update_id"), "nothing")
        return Delivery(ignored=(Ignored(_KINDS.get(kind, "unknown"), kind[:64]),))
    found = _read_message(convert_or_none(update["message"], Message))
    return Delivery(arrivals=(found,)) if isinstance(found, Arrival) else Delivery(ignored=(found,))


def _read_message(message: Message | None) -> Arrival | Ignored:
    sent_at = time_from_timestamp(message.date) if message else None
    if message is None or sent_at is None:
        return Ignored("broken", "message")
    if message.sender is None or message.sender_chat is not None:
        return Ignored("unaddressed", "written in the name of a chat")
    if message.sender.is_bot:
        return Ignored("bot")
    text = message_text(message)
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

"""Telegram codec: updates of the Bot API in, by webhook or polling; messages, edits and answers to buttons out.

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
from threadline.channels.inspection import Inspection
from threadline.channels.platform_payloads import (
    convert_or_none,
    failure_for_status,
    parse_body,
    parse_json,
    place_by_recipient,
    require_equal,
    require_secret,
    require_sendable_secret,
    single_header,
    time_from_timestamp,
)
from threadline.channels.telegram_entities import Person, compose, measure
from threadline.channels.telegram_inspection import inspect_telegram
from threadline.channels.telegram_messages import (
    Chat,
    Message,
    has_only_media,
    is_addressed,
    message_text,
    quoted_text,
)
from threadline.channels.text_split import Size, split
from threadline.core import jsontext
from threadline.core.approval_questions import ChatQuestion, read_button
from threadline.core.commands import read_choice
from threadline.core.errors import NotFound, SettingsInvalid, quote
from threadline.core.platform_messages import (
    UNTIMED,
    Ambiguous,
    Arrival,
    BotIdentity,
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
from threadline.ports import InspectionContext

API = "https://api.telegram.org"
TEXT_LIMIT = Size(4096, ranges=100)
UPDATES_PER_POLL = 100

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,100}")
_RECIPIENT = re.compile(r"(-?[0-9]{1,20})(?::([0-9]{1,20}))?")
_KINDS: dict[str, IgnoredReason] = {
    "edited_channel_post": "edit",
    "edited_business_message": "edit",
    "deleted_business_messages": "deletion",
    "my_chat_member": "membership",
    "chat_member": "membership",
    "chat_join_request": "membership",
    "channel_post": "unaddressed",
}
_ALLOWED_UPDATES = ["message", "edited_message", "my_chat_member", "callback_query"]
# Lists to choose from in a chat are shorter.
_MOST_CHOICES = 100
_CALLBACK = "callback:"
"""How the recipient of a notice begins: the id of the pressed button's query follows."""
_NOTICE_LIMIT = 200
# No previews: Telegram would fetch any URL that an attacker made the agent write.
_NO_PREVIEWS = {"link_preview_options": {"is_disabled": True}}
# Refusals of an edit or a notice that a retry cannot change, and that leave nothing to do.
_NOTHING_TO_DO = (
    "message is not modified",
    "message to edit not found",
    "message can't be edited",
    "query is too old",
    "query ID is invalid",
)


class _Parameters(msgspec.Struct):
    retry_after: float | None = None


class _Me(msgspec.Struct):
    id: int
    username: str | None = None


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


class _PressedMessage(msgspec.Struct):
    """The message with the button. Of an old one Telegram sends little more than the chat."""

    chat: Chat
    message_thread_id: int | None = None
    is_topic_message: bool = False


class _CallbackQuery(msgspec.Struct, rename={"sender": "from"}):
    id: str
    sender: Person
    message: _PressedMessage | None = None
    data: str | None = None


class Telegram:
    platform: Surface = "telegram"
    # Polling needs no secret word: Telegram answers only who knows the token.
    sufficient_secrets = (frozenset(("bot_token", "webhook_secret")), frozenset(("bot_token",)))
    must_know_bot = True
    typing_seconds = 4.0
    """Telegram shows it for five."""
    secret_names: Mapping[str, str] = {
        "bot_token": "the token from @BotFather: digits, a colon, letters",
        "webhook_secret": "for webhooks: a random word of letters, digits, _ and -, the same as in setWebhook",
    }

    def __init__(self, api: str = API, *, by_thread: bool = True) -> None:
        """`by_thread`: each topic of a group is a place of its own."""
        self._api = api.rstrip("/")
        self._by_thread = by_thread

    def verify(
        self, secrets: Mapping[str, str], headers: Sequence[tuple[str, str]], body: bytes, now: dt.datetime
    ) -> None:
        secret = require_secret(secrets, "webhook_secret")
        require_equal(single_header(headers, "x-telegram-bot-api-secret-token"), secret)

    def answer_handshake(self, secrets: Mapping[str, str], query: Mapping[str, str]) -> str:
        raise NotFound("handshake", self.platform)

    def build_identity_request(self, secrets: Mapping[str, str]) -> HttpRequest:
        return self._call(secrets, "getMe", {})

    def parse_identity(self, response: HttpResponse) -> BotIdentity | Transient | Permanent:
        answer = parse_body(response, _Answer)
        if answer is None:
            return failure_for_status(response, f"http_{response.status}")
        me = convert_or_none(answer.result, _Me) if answer.ok else None
        return _refused(response, answer) if me is None else BotIdentity(str(me.id), me.username)

    def inspect(self, secrets: Mapping[str, str], context: InspectionContext) -> Inspection:
        webhook = self._call(secrets, "getWebhookInfo", {})
        return inspect_telegram(secrets, context, self.build_identity_request(secrets), webhook, _ALLOWED_UPDATES)

    def parse_webhook(self, body: bytes, me: BotIdentity | None = None) -> Delivery:
        return self._read(parse_json(body), me)

    def _read(self, update: Any, me: BotIdentity | None) -> Delivery:
        delivery = _read_update(update, me)
        return place_by_recipient(delivery) if self._by_thread else delivery

    def render(self, text: str) -> list[str]:
        pieces = split(markdown.parse_markdown(text), measure, TEXT_LIMIT)
        return [jsontext.dump(compose(piece)).decode() for piece in pieces]

    def render_question(self, question: ChatQuestion) -> list[str]:
        buttons = [
            {"text": "Allow", "callback_data": question.yes},
            {"text": "Don't allow", "callback_data": question.no},
        ]
        message = compose(markdown.parse_markdown(question.text))
        return [jsontext.dump({**message, "reply_markup": {"inline_keyboard": [buttons]}}).decode()]

    def render_edit(self, text: str) -> str:
        # Without a keyboard, the edit removes the one that the message has.
        return jsontext.dump(compose(markdown.parse_markdown(text))).decode()

    def build_edit(self, secrets: Mapping[str, str], recipient: str, message_id: str, payload: str) -> HttpRequest:
        chat_id, _ = _read_recipient(recipient)
        message = {"chat_id": chat_id, "message_id": int(message_id), **jsontext.parse(payload, "payload")}
        return self._call(secrets, "editMessageText", {**message, **_NO_PREVIEWS})

    def build_request(self, secrets: Mapping[str, str], recipient: str, payload: str, key: str) -> HttpRequest:
        if recipient.startswith(_CALLBACK):
            text = jsontext.parse(payload, "payload")["text"][:_NOTICE_LIMIT]
            query = {"callback_query_id": recipient.removeprefix(_CALLBACK), "text": text}
            return self._call(secrets, "answerCallbackQuery", query)
        chat_id, topic = _read_recipient(recipient)
        message = {"chat_id": chat_id, **jsontext.parse(payload, "payload"), **_NO_PREVIEWS}
        if topic is not None:
            message["message_thread_id"] = topic
        return self._call(secrets, "sendMessage", message)

    def build_typing(self, secrets: Mapping[str, str], arrival: Arrival) -> HttpRequest:
        return self._call(secrets, "sendChatAction", {**_where(arrival), "action": "typing"})

    def has_drafts(self, arrival: Arrival) -> bool:
        # Private chats have positive ids; a recipient of another kind is refused when it is sent to.
        return not arrival.recipient.startswith("-")

    def build_draft(self, secrets: Mapping[str, str], arrival: Arrival, text: str) -> HttpRequest:
        # Of a reply that becomes several messages, the one that is being written.
        *_, last = split(markdown.parse_markdown(text), measure, TEXT_LIMIT)
        # Drafts with one id are changes of one draft; the question's number is unique in the chat.
        draft_id = int(arrival.key.rpartition(":")[2])
        return self._call(secrets, "sendMessageDraft", {**_where(arrival), "draft_id": draft_id, **compose(last)})

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
        if response.status == 400 and any(each in answer.description for each in _NOTHING_TO_DO):
            return Sent()
        return _refused(response, answer)

    def build_poll_request(self, secrets: Mapping[str, str], after: int, wait_seconds: int) -> HttpRequest:
        parameters = {"timeout": wait_seconds, "limit": UPDATES_PER_POLL, "allowed_updates": _ALLOWED_UPDATES}
        return self._call(secrets, "getUpdates", {**parameters, "offset": after + 1} if after else parameters)

    def parse_poll_response(
        self, response: HttpResponse, me: BotIdentity | None = None
    ) -> Polled | Transient | Permanent:
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
        return Polled(tuple(self._read(update, me) for update in updates), max(numbers, default=None))

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


def _where(arrival: Arrival) -> dict[str, Any]:
    chat_id, topic = _read_recipient(arrival.recipient)
    return {"chat_id": chat_id} if topic is None else {"chat_id": chat_id, "message_thread_id": topic}


def _read_recipient(recipient: str) -> tuple[int, int | None]:
    where = _RECIPIENT.fullmatch(recipient)
    if where is None:
        raise SettingsInvalid(f"recipient must be a Telegram chat id, got {quote(recipient)}")
    return int(where[1]), int(where[2]) if where[2] else None


def _read_update(update: Any, me: BotIdentity | None) -> Delivery:
    if not isinstance(update, dict) or convert_or_none(update, _Numbered) is None:
        return Delivery(ignored=(Ignored("broken", "update"),))
    if "callback_query" in update:
        pressed = _read_press(convert_or_none(update["callback_query"], _CallbackQuery))
        return Delivery(arrivals=(pressed,)) if isinstance(pressed, Arrival) else Delivery(ignored=(pressed,))
    name = next((each for each in ("message", "edited_message") if each in update), None)
    if name is None:
        kind = next((each for each in update if each != "update_id"), "nothing")
        return Delivery(ignored=(Ignored(_KINDS.get(kind, "unknown"), kind[:64]),))
    found = _read_message(convert_or_none(update[name], Message), me, is_edit=name == "edited_message")
    return Delivery(arrivals=(found,)) if isinstance(found, Arrival) else Delivery(ignored=(found,))


def _read_press(query: _CallbackQuery | None) -> Arrival | Ignored:
    if query is None or query.message is None or query.data is None or read_button(query.data) is None:
        return Ignored("unknown", "callback_query")
    message = query.message
    place, topic = str(message.chat.id), message.message_thread_id if message.is_topic_message else None
    return Arrival(
        platform="telegram",
        key=f"{_CALLBACK}{query.id}",
        sender=str(query.sender.id),
        place=place,
        recipient=f"{place}:{topic}" if topic else place,
        text=query.data,
        # Telegram does not say when a button was pressed.
        sent_at=UNTIMED,
        shared=message.chat.type != "private",
        kind="answer",
        notice_to=f"{_CALLBACK}{query.id}",
        awaits_notice=True,
    )


def _read_message(message: Message | None, me: BotIdentity | None, *, is_edit: bool) -> Arrival | Ignored:
    stamp = None if message is None else (message.edit_date if is_edit else message.date)
    sent_at = time_from_timestamp(stamp) if stamp is not None else None
    if message is None or sent_at is None:
        return Ignored("broken", "message")
    if message.sender is None or message.sender_chat is not None:
        return Ignored("unaddressed", "written in the name of a chat")
    if message.sender.is_bot:
        return Ignored("bot")
    text = message_text(message, me)
    if isinstance(text, Ignored):
        return text
    place, is_shared = str(message.chat.id), message.chat.type != "private"
    topic = message.message_thread_id if message.is_topic_message else None
    recipient = f"{place}:{topic}" if topic else place
    if not _RECIPIENT.fullmatch(recipient):
        return Ignored("broken", "chat")
    # A group's administrator gets every message of it.
    addressed = not is_shared or is_edit or is_addressed(message, me)
    if not addressed and read_choice(text, _MOST_CHOICES) is None:
        return Ignored("unaddressed")
    replied, key = message.reply_to_message, f"{place}:{message.message_id}"
    is_unread = has_only_media(message) and message.forward_origin is None
    if is_unread and message.media_group_id is not None:
        # An album is many messages, and gets one answer.
        key = f"{place}:album:{message.media_group_id}"
    return Arrival(
        platform="telegram",
        key=f"{key}:{message.edit_date}" if is_edit else key,
        sender=str(message.sender.id),
        place=place,
        recipient=recipient,
        text=text,
        sent_at=sent_at,
        shared=is_shared,
        reply_to=f"{place}:{replied.message_id}" if replied else None,
        quoted=quoted_text(message),
        kind="edit" if is_edit else "unsupported" if is_unread else "message",
        target=key if is_edit else None,
        is_addressed=addressed,
    )

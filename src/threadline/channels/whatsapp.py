"""WhatsApp codec: webhooks of the Cloud API in, `/messages` out.

One body may contain many messages and statuses; each is parsed separately. A status starts no turn, but reports what
happened to a sent message, identified by our key. Replies are sent from the number that received the message.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from threadline.channels import markdown
from threadline.channels.inspection import Inspection
from threadline.channels.platform_payloads import (
    convert_or_none,
    failure_for_status,
    parse_body,
    parse_json,
    require_equal,
    require_secret,
    require_sendable_secret,
    retry_after,
    single_header,
    time_from_timestamp,
)
from threadline.channels.text_marks import Marks, render_marked
from threadline.channels.text_split import Size, split
from threadline.channels.whatsapp_inspection import inspect_whatsapp
from threadline.channels.whatsapp_messages import Message, has_only_media, message_text, pressed_button
from threadline.core import jsontext
from threadline.core.approval_questions import ChatQuestion
from threadline.core.errors import NotFound, SettingsInvalid, SignatureInvalid, quote
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    BotIdentity,
    Delivery,
    HttpRequest,
    HttpResponse,
    Ignored,
    Outcome,
    Permanent,
    Report,
    Sent,
    Transient,
    WindowClosed,
)
from threadline.core.turns import Surface
from threadline.ports import InspectionContext

API = "https://graph.facebook.com/v23.0"
TEXT_LIMIT = 4096
_QUESTION_LIMIT = 1024

_STAMP = re.compile(r"[0-9]{1,12}")
_NUMBER = re.compile(r"[0-9]{1,32}")
_PERSON = re.compile(r"[0-9]{1,32}|[A-Z]{2}(?:\.ENT)?\.[A-Za-z0-9]{1,128}")
"""A phone number, or Meta's id of a user who hides the number from businesses."""
_CHALLENGE = re.compile(r"[!-~]{1,256}")
_WINDOW_CLOSED_CODE = 131047
_TEMPLATE = re.compile(r"[a-z0-9_]{1,512}")
_LIMIT_CODES = frozenset((4, 80007, 130429, 131048, 131056))
_OUTAGE_CODES = frozenset((1, 2, 131000, 131016, 131057, 133004, 135000))
_MARKS = Marks(
    styles={"code": "`", "strike": "~", "italic": "_", "bold": "*"},
    escape=str,
    link=lambda text, href: text if text in (href, href.partition(":")[2]) else f"{text} ({href})",
)


class _Metadata(msgspec.Struct):
    phone_number_id: str
    display_phone_number: str = ""


class _Value(msgspec.Struct):
    metadata: _Metadata
    messages: list[Any] = []
    statuses: list[Any] = []


class _Change(msgspec.Struct):
    field: str
    value: Any = None


class _Entry(msgspec.Struct):
    changes: list[Any]


class _Body(msgspec.Struct):
    object: str
    entry: list[Any]


class _Error(msgspec.Struct):
    code: int = 0
    title: str | None = None
    message: str | None = None

    @property
    def reason(self) -> str:
        return f"{self.code} {self.title or self.message or ''}".strip()[:300]


class _Status(msgspec.Struct):
    status: str
    biz_opaque_callback_data: str | None = None
    errors: list[_Error] | None = None


class _SentMessage(msgspec.Struct):
    id: str


class _Whoami(msgspec.Struct):
    id: str = ""
    name: str | None = None
    error: _Error | None = None


class _Answer(msgspec.Struct):
    messages: list[_SentMessage] | None = None
    error: _Error | None = None


class WhatsApp:
    platform: Surface = "whatsapp"
    sufficient_secrets = (frozenset(("app_secret", "access_token", "verify_token")),)
    must_know_bot = False
    typing_seconds = 20.0
    """WhatsApp shows it for 25."""
    secret_names: Mapping[str, str] = {
        "app_secret": "the app's settings, under Basic",
        "access_token": "a system user's token from the business settings, with whatsapp_business_messaging",
        "verify_token": "a random word, the same as in the configuration of the webhook",
    }

    def __init__(self, api: str = API, *, template: str | None = None, template_language: str = "en_US") -> None:
        """`template` is the name of an approved one without parameters."""
        if template is not None and not _TEMPLATE.fullmatch(template):
            rule = "must be lower-case letters, digits and _, as WhatsApp Manager shows it"
            raise SettingsInvalid(f"channels.whatsapp.template {rule}, got {quote(template)}")
        self._api = api.rstrip("/")
        self._template = template
        self._template_language = template_language

    def verify(
        self, secrets: Mapping[str, str], headers: Sequence[tuple[str, str]], body: bytes, now: dt.datetime
    ) -> None:
        secret = require_secret(secrets, "app_secret")
        require_equal(single_header(headers, "x-hub-signature-256"), signature(secret, body))

    def answer_handshake(self, secrets: Mapping[str, str], query: Mapping[str, str]) -> str:
        if "hub.mode" not in query:
            raise NotFound("handshake", self.platform)
        require_equal(query.get("hub.verify_token", ""), require_secret(secrets, "verify_token"))
        challenge = query.get("hub.challenge", "")
        if query["hub.mode"] != "subscribe" or not _CHALLENGE.fullmatch(challenge):
            raise SignatureInvalid("`hub.mode` must be subscribe, with a `hub.challenge` of 1–256 visible characters")
        return challenge

    def build_identity_request(self, secrets: Mapping[str, str]) -> HttpRequest:
        headers = {"authorization": f"Bearer {require_sendable_secret(secrets, 'access_token')}"}
        return HttpRequest("GET", f"{self._api}/me", headers)

    def parse_identity(self, response: HttpResponse) -> BotIdentity | Transient | Permanent:
        answer = parse_body(response, _Whoami)
        if answer is not None and answer.id:
            return BotIdentity(answer.id, answer.name)
        reason = answer.error.reason if answer and answer.error else f"http_{response.status}"
        return failure_for_status(response, reason)

    def inspect(self, secrets: Mapping[str, str], context: InspectionContext) -> Inspection:
        return inspect_whatsapp(secrets, context, self._api)

    def parse_webhook(self, body: bytes, me: BotIdentity | None = None) -> Delivery:
        found = list(_read(parse_json(body)))
        return Delivery(
            arrivals=tuple(item for item in found if isinstance(item, Arrival)),
            ignored=tuple(item for item in found if isinstance(item, Ignored)),
            reports=tuple(item for item in found if isinstance(item, Report)),
        )

    def render(self, text: str) -> list[str]:
        pieces = split(markdown.parse_markdown(text), _measure, Size(TEXT_LIMIT))
        return [
            jsontext.dump(
                {"type": "text", "text": {"preview_url": False, "body": render_marked(piece, _MARKS)}}
            ).decode()
            for piece in pieces
        ]

    def render_question(self, question: ChatQuestion) -> list[str]:
        shown = render_marked(markdown.parse_markdown(question.text), _MARKS)
        buttons = [
            {"type": "reply", "reply": {"id": data, "title": title}}
            for data, title in ((question.yes, "Allow"), (question.no, "Don't allow"))
        ]
        body = shown if len(shown) <= _QUESTION_LIMIT else f"{shown[: _QUESTION_LIMIT - 1]}…"
        asked = {"type": "button", "body": {"text": body}, "action": {"buttons": buttons}}
        return [jsontext.dump({"type": "interactive", "interactive": asked}).decode()]

    def build_request(self, secrets: Mapping[str, str], recipient: str, payload: str, key: str) -> HttpRequest:
        number_id, _, person = recipient.partition(":")
        if not _NUMBER.fullmatch(number_id) or not _PERSON.fullmatch(person):
            raise SettingsInvalid(f"recipient must be a WhatsApp number id and user, got {quote(recipient)}")
        message = {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to" if person.isdigit() else "recipient": person,
            "biz_opaque_callback_data": key,
            **jsontext.parse(payload, "payload"),
        }
        return self._post(secrets, number_id, message)

    def render_template(self) -> str | None:
        if self._template is None:
            return None
        named = {"name": self._template, "language": {"code": self._template_language}}
        return jsontext.dump({"type": "template", "template": named}).decode()

    def build_typing(self, secrets: Mapping[str, str], arrival: Arrival) -> HttpRequest:
        """It also marks the message as read."""
        about = {"messaging_product": "whatsapp", "status": "read", "message_id": arrival.key}
        return self._post(secrets, arrival.recipient.partition(":")[0], {**about, "typing_indicator": {"type": "text"}})

    def has_drafts(self, arrival: Arrival) -> bool:
        return False

    def build_draft(self, secrets: Mapping[str, str], arrival: Arrival, text: str) -> None:
        return None

    def _post(self, secrets: Mapping[str, str], number_id: str, message: dict[str, Any]) -> HttpRequest:
        headers = {
            "authorization": f"Bearer {require_sendable_secret(secrets, 'access_token')}",
            "content-type": "application/json",
        }
        return HttpRequest("POST", f"{self._api}/{number_id}/messages", headers, jsontext.dump(message, "payload"))

    def parse_response(self, response: HttpResponse) -> Outcome:
        answer = parse_body(response, _Answer)
        if answer is not None and answer.error is not None:
            return _error_outcome(answer.error, response)
        if response.status != 200:
            return failure_for_status(response, f"http_{response.status}")
        if answer is None or not answer.messages:
            return Ambiguous("the response could not be read")
        return Sent(answer.messages[0].id)


def signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _error_outcome(error: _Error, response: HttpResponse) -> Outcome:
    if error.code == _WINDOW_CLOSED_CODE:
        return WindowClosed(error.reason)
    if error.code in _LIMIT_CODES or error.code in _OUTAGE_CODES:
        return Transient(error.reason, retry_after(response), is_outage=error.code in _OUTAGE_CODES)
    return failure_for_status(response, error.reason)


def _read(value: Any) -> Iterator[Arrival | Ignored | Report]:
    body = convert_or_none(value, _Body)
    if body is None:
        yield Ignored("broken", "body")
        return
    for entry in body.entry:
        changes = convert_or_none(entry, _Entry)
        if changes is None:
            yield Ignored("broken", "entry")
            continue
        for change in changes.changes:
            yield from _read_change(convert_or_none(change, _Change))


def _read_change(change: _Change | None) -> Iterator[Arrival | Ignored | Report]:
    if change is None:
        yield Ignored("broken", "change")
    elif change.field != "messages":
        yield Ignored("unknown", change.field[:64])
    elif (value := convert_or_none(change.value, _Value)) is None:
        yield Ignored("broken", "value")
    else:
        yield from (_read_message(message, value.metadata) for message in value.messages)
        for status in value.statuses:
            yield from _read_status(convert_or_none(status, _Status))


def _read_message(value: Any, metadata: _Metadata) -> Arrival | Ignored:
    message = convert_or_none(value, Message)
    if message is None or not _STAMP.fullmatch(message.timestamp) or not message.id:
        return Ignored("broken", "message")
    sender, sent_at = message.sender or message.from_user_id or "", time_from_timestamp(int(message.timestamp))
    if sent_at is None or not _PERSON.fullmatch(sender) or not _NUMBER.fullmatch(metadata.phone_number_id):
        return Ignored("broken", "message")
    if sender == metadata.display_phone_number.lstrip("+"):
        return Ignored("own")
    pressed = None if message.group_id is not None else pressed_button(message)
    text = pressed or message_text(message)
    if isinstance(text, Ignored):
        return text
    place = f"{metadata.phone_number_id}:{sender}"
    return Arrival(
        platform="whatsapp",
        key=message.id,
        sender=sender,
        place=place,
        recipient=place,
        text=text,
        sent_at=sent_at,
        reply_to=message.context.id if message.context else None,
        kind="answer" if pressed is not None else "unsupported" if has_only_media(message) else "message",
    )


def _read_status(status: _Status | None) -> Iterator[Ignored | Report]:
    if status is None:
        yield Ignored("broken", "status")
        return
    yield Ignored("status", status.status[:64])
    key = status.biz_opaque_callback_data
    if key is None:
        return
    if status.status == "failed":
        error = status.errors[0] if status.errors else _Error()
        yield Report(key, WindowClosed(error.reason) if error.code == _WINDOW_CLOSED_CODE else Permanent(error.reason))
    elif status.status in ("sent", "delivered", "read"):
        yield Report(key, Sent())


def _measure(block: markdown.Block) -> Size:
    return Size(len(render_marked([block], _MARKS)))

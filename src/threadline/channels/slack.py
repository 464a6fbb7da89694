"""Slack codec: the Events API (`slack_events`), buttons and slash commands (`slack_interactions`) in;
`chat.postMessage`, edits and notices out.

Replies to a message in a channel are sent into its thread.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

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
    retry_after,
    single_header,
)
from threadline.channels.slack_events import Envelope, in_direct_thread, read_event
from threadline.channels.slack_inspection import inspect_slack
from threadline.channels.slack_interactions import is_form, read_form
from threadline.channels.slack_sockets import build_acknowledgement, read_frame
from threadline.channels.slack_streams import SlackStreams
from threadline.channels.slack_text import MARKS
from threadline.channels.text_marks import render_marked
from threadline.channels.text_split import Size, split
from threadline.core import jsontext
from threadline.core.approval_questions import ChatQuestion
from threadline.core.errors import NotFound, SignatureInvalid
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    BotIdentity,
    Delivery,
    HttpRequest,
    HttpResponse,
    Ignored,
    LookedUp,
    Outcome,
    Permanent,
    Sent,
    SocketFrame,
    Transient,
)
from threadline.core.turns import Surface
from threadline.ports import InspectionContext

API = "https://slack.com/api"
SKEW_SECONDS = 300
"""Slack's own recommendation against replayed requests."""
TEXT_LIMIT = 4000

_STAMP = re.compile(r"[0-9]{1,12}")
# Slack documents that the message may have been posted before one of these errors.
_UNCLEAR = frozenset(("fatal_error", "internal_error"))
# A gateway in front of Slack may have given up on a request that Slack then carried out.
_UNCLEAR_STATUSES = frozenset((500, 502, 504))
_LIMITED = frozenset(("ratelimited", "rate_limited"))
_OUTAGES = frozenset(("request_timeout", "service_unavailable", "team_added_to_org"))
_EVENT_TYPE = "threadline_delivery"
# No previews: Slack would fetch any URL that an attacker made the agent write.
_NO_PREVIEWS = {"mrkdwn": True, "unfurl_links": False, "unfurl_media": False}
_SECTION_LIMIT = 3000
# The message was deleted since, or can no longer be edited: there is nothing left to replace.
_NOTHING_TO_EDIT = frozenset(("message_not_found", "cant_update_message", "edit_window_closed"))
# Slack's recommended largest page.
_PAGE = 200


class _Answer(msgspec.Struct):
    ok: bool
    error: str = "unknown_error"
    ts: str | None = None


class _Whoami(msgspec.Struct):
    ok: bool
    error: str = "unknown_error"
    user_id: str | None = None
    user: str | None = None


class _Opened(msgspec.Struct):
    ok: bool
    error: str = "unknown_error"
    url: str | None = None


class _Metadata(msgspec.Struct):
    event_type: str = ""
    event_payload: dict[str, Any] = {}

    def is_of(self, key: str) -> bool:
        return self.event_type == _EVENT_TYPE and self.event_payload.get("id") == key


class _Posted(msgspec.Struct):
    ts: str
    metadata: _Metadata | None = None


class _Cursor(msgspec.Struct):
    next_cursor: str = ""


class _Page(msgspec.Struct):
    ok: bool
    error: str = "unknown_error"
    messages: list[Any] = []
    response_metadata: _Cursor | None = None


class Slack(SlackStreams):
    platform: Surface = "slack"
    sufficient_secrets = (frozenset(("signing_secret", "bot_token")), frozenset(("app_token", "bot_token")))
    must_know_bot = False
    typing_seconds = 60.0
    """Slack shows a status for two minutes."""
    secret_names: Mapping[str, str] = {
        "signing_secret": "the app's Basic Information, under App Credentials",
        "bot_token": "the app's OAuth & Permissions, after it is installed; starts with xoxb-",
        "app_token": "for Socket Mode: the app's Basic Information, App-Level Tokens; starts with xapp-",
    }

    def __init__(self, api: str = API, *, by_thread: bool = True, direct_threads: bool = False) -> None:
        """`by_thread`: each thread is a place of its own. `direct_threads`: direct messages are answered in threads."""
        self._direct_threads = direct_threads
        self._api = api.rstrip("/")
        self._by_thread = by_thread

    def verify(
        self, secrets: Mapping[str, str], headers: Sequence[tuple[str, str]], body: bytes, now: dt.datetime
    ) -> None:
        secret = require_secret(secrets, "signing_secret")
        stamp = single_header(headers, "x-slack-request-timestamp")
        if not _STAMP.fullmatch(stamp) or abs(now.timestamp() - int(stamp)) > SKEW_SECONDS:
            raise SignatureInvalid("timestamp must be within five minutes of now: check the clock of this machine")
        require_equal(single_header(headers, "x-slack-signature"), signature(secret, stamp, body))

    def answer_handshake(self, secrets: Mapping[str, str], query: Mapping[str, str]) -> str:
        raise NotFound("handshake", self.platform)

    def build_identity_request(self, secrets: Mapping[str, str]) -> HttpRequest:
        headers = self._headers(secrets, "application/x-www-form-urlencoded")
        return HttpRequest("POST", f"{self._api}/auth.test", headers)

    def parse_identity(self, response: HttpResponse) -> BotIdentity | Transient | Permanent:
        answer = parse_body(response, _Whoami)
        if answer is not None and answer.ok and answer.user_id:
            return BotIdentity(answer.user_id, answer.user)
        error = answer.error if answer else f"http_{response.status}"
        return _failure(error, response) if response.status == 200 else failure_for_status(response, error)

    def inspect(self, secrets: Mapping[str, str], context: InspectionContext) -> Inspection:
        connection = self.build_socket_request(secrets) if secrets.get("app_token") else None
        return inspect_slack(context, self.build_identity_request(secrets), connection)

    def parse_webhook(self, body: bytes, me: BotIdentity | None = None) -> Delivery:
        if is_form(body):
            return self._placed(read_form(body))
        envelope = convert_or_none(parse_json(body), Envelope)
        if envelope is None:
            return Delivery(ignored=(Ignored("broken", "envelope"),))
        if envelope.type == "url_verification" and envelope.challenge is not None:
            return Delivery(challenge=envelope.challenge)
        if envelope.type != "event_callback":
            return Delivery(ignored=(Ignored("unknown", envelope.type[:64]),))
        found = read_event(envelope, me)
        if isinstance(found, Arrival):
            return self._placed(Delivery(arrivals=(found,)))
        return Delivery(ignored=(found,))

    def build_socket_request(self, secrets: Mapping[str, str]) -> HttpRequest:
        headers = self._headers(secrets, "application/x-www-form-urlencoded", "app_token")
        return HttpRequest("POST", f"{self._api}/apps.connections.open", headers)

    def parse_socket_response(self, response: HttpResponse) -> str | Transient | Permanent:
        answer = parse_body(response, _Opened)
        if answer is not None and answer.ok and answer.url:
            return answer.url
        error = answer.error if answer else f"http_{response.status}"
        if error in _UNCLEAR:
            return Transient(error, is_outage=True)
        return _failure(error, response) if response.status == 200 else failure_for_status(response, error)

    def parse_frame(self, frame: str) -> SocketFrame:
        return read_frame(frame, self.parse_webhook)

    def build_acknowledgement(self, envelope_id: str) -> str:
        return build_acknowledgement(envelope_id)

    def _placed(self, delivery: Delivery) -> Delivery:
        if self._direct_threads:
            delivery = delivery._replace(arrivals=tuple(map(in_direct_thread, delivery.arrivals)))
        return place_by_recipient(delivery) if self._by_thread else delivery

    def render(self, text: str) -> list[str]:
        pieces = split(markdown.parse_markdown(text), _measure, Size(TEXT_LIMIT))
        return [jsontext.dump({"text": render_marked(piece, MARKS), **_NO_PREVIEWS}).decode() for piece in pieces]

    def render_question(self, question: ChatQuestion) -> list[str]:
        section = _section(question.text)
        buttons = [
            _button("threadline_yes", "Allow", "primary", question.yes),
            _button("threadline_no", "Don't allow", "danger", question.no),
        ]
        blocks = [section, {"type": "actions", "elements": buttons}]
        # Notifications and screen readers get the text, which has to say everything that the blocks do.
        return [jsontext.dump({"text": section["text"]["text"], "blocks": blocks, **_NO_PREVIEWS}).decode()]

    def render_edit(self, text: str) -> str:
        section = _section(text)
        return jsontext.dump({"text": section["text"]["text"], "blocks": [section]}).decode()

    def build_edit(self, secrets: Mapping[str, str], recipient: str, message_id: str, payload: str) -> HttpRequest:
        channel = recipient.partition(":")[0]
        message = {"channel": channel, "ts": message_id, **jsontext.parse(payload, "payload")}
        headers = self._headers(secrets, "application/json; charset=utf-8")
        return HttpRequest("POST", f"{self._api}/chat.update", headers, jsontext.dump(message, "payload"))

    def build_request(self, secrets: Mapping[str, str], recipient: str, payload: str, key: str) -> HttpRequest:
        where, _, only_for = recipient.partition("/")
        channel, _, thread_ts = where.partition(":")
        message = {"channel": channel, **jsontext.parse(payload, "payload")}
        if thread_ts:
            message["thread_ts"] = thread_ts
        if only_for:
            message["user"] = only_for
            headers = self._headers(secrets, "application/json; charset=utf-8")
            return HttpRequest("POST", f"{self._api}/chat.postEphemeral", headers, jsontext.dump(message, "payload"))
        # Slack documents errors about this id, but no rule that a second message under it is not posted.
        message["client_msg_id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"threadline:{key}"))
        # Read back by `parse_search`: the documented way to recognise a message that was sent before.
        message["metadata"] = {"event_type": _EVENT_TYPE, "event_payload": {"id": key}}
        headers = self._headers(secrets, "application/json; charset=utf-8")
        return HttpRequest("POST", f"{self._api}/chat.postMessage", headers, jsontext.dump(message, "payload"))

    def build_typing(self, secrets: Mapping[str, str], arrival: Arrival) -> HttpRequest | None:
        """Only threads have a status. Slack takes it away when the reply is posted."""
        channel, _, thread_ts = arrival.recipient.partition("/")[0].partition(":")
        if not thread_ts:
            return None
        status = {"channel_id": channel, "thread_ts": thread_ts, "status": "is writing…"}
        headers = self._headers(secrets, "application/json; charset=utf-8")
        url = f"{self._api}/assistant.threads.setStatus"
        return HttpRequest("POST", url, headers, jsontext.dump(status, "status"))

    def has_drafts(self, arrival: Arrival) -> bool:
        return False

    def build_draft(self, secrets: Mapping[str, str], arrival: Arrival, text: str) -> None:
        return None

    def parse_response(self, response: HttpResponse) -> Outcome:
        answer = parse_body(response, _Answer)
        reason = answer.error if answer else f"http_{response.status}"
        if response.status in _UNCLEAR_STATUSES:
            return Ambiguous(reason)
        if response.status != 200:
            return failure_for_status(response, reason)
        if answer is None:
            return Ambiguous("the response could not be read")
        if answer.ok:
            return Sent(answer.ts)
        if answer.error == "duplicate_message_not_found":
            # The id belongs to a message that was deleted since: the message was sent.
            return Sent()
        if answer.error in _NOTHING_TO_EDIT:
            return Sent()
        return Ambiguous(answer.error) if answer.error in _UNCLEAR else _failure(answer.error, response)

    def build_search(
        self, secrets: Mapping[str, str], recipient: str, since: dt.datetime, page: str | None
    ) -> HttpRequest:
        channel, _, thread_ts = recipient.partition("/")[0].partition(":")
        given = {"channel": channel, "oldest": f"{since.timestamp():.6f}", "limit": str(_PAGE)}
        # Without it Slack leaves the metadata out.
        given["include_all_metadata"] = "true"
        if thread_ts:
            given["ts"] = thread_ts
        if page is not None:
            given["cursor"] = page
        method = "conversations.replies" if thread_ts else "conversations.history"
        # Slack's reading methods take a form, not JSON.
        headers = self._headers(secrets, "application/x-www-form-urlencoded")
        return HttpRequest("POST", f"{self._api}/{method}", headers, urlencode(given).encode())

    def parse_search(self, response: HttpResponse, key: str) -> LookedUp | Transient | Permanent:
        answer = parse_body(response, _Page)
        if response.status != 200:
            return failure_for_status(response, answer.error if answer else f"http_{response.status}")
        if answer is None:
            return Transient("the response could not be read", is_outage=True)
        if not answer.ok:
            is_unclear = answer.error in _UNCLEAR
            return Transient(answer.error, is_outage=True) if is_unclear else _failure(answer.error, response)
        for each in answer.messages:
            message = convert_or_none(each, _Posted)
            if message is not None and message.metadata is not None and message.metadata.is_of(key):
                return LookedUp(Sent(message.ts))
        return LookedUp(next_page=answer.response_metadata.next_cursor or None if answer.response_metadata else None)

    def _headers(self, secrets: Mapping[str, str], content_type: str, name: str = "bot_token") -> dict[str, str]:
        token = require_sendable_secret(secrets, name)
        return {"authorization": f"Bearer {token}", "content-type": content_type}


def _section(text: str) -> dict[str, Any]:
    shown = render_marked(markdown.parse_markdown(text), MARKS)
    cut = shown if len(shown) <= _SECTION_LIMIT else f"{shown[: _SECTION_LIMIT - 1]}…"
    return {"type": "section", "text": {"type": "mrkdwn", "text": cut}}


def _button(action_id: str, text: str, style: str, value: str) -> dict[str, Any]:
    label = {"type": "plain_text", "text": text}
    return {"type": "button", "action_id": action_id, "text": label, "style": style, "value": value}


def _failure(error: str, response: HttpResponse) -> Transient | Permanent:
    if error in _LIMITED:
        return Transient(error, retry_after(response))
    return Transient(error, retry_after(response), is_outage=True) if error in _OUTAGES else Permanent(error)


def signature(secret: str, stamp: str, body: bytes) -> str:
    signed = b"v0:" + stamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _measure(block: markdown.Block) -> Size:
    return Size(len(render_marked([block], MARKS)))

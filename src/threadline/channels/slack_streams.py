"""Streams on Slack: a reply in a thread of a direct conversation is shown while it is written.

Slack allows streams in other places too, but there several people may be answered at once in one thread, and a stream
carries nothing by which the next process could tell whose it was. Slack ends a stream after some minutes; the message
stays, and is replaced by the reply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from threadline.channels.platform_payloads import convert_or_none, failure_for_status, parse_body
from threadline.core import jsontext
from threadline.core.platform_messages import HttpRequest, HttpResponse, Outcome, Permanent, Transient

# The reply's first message has at most 4,000; what does not fit is not worth more than a status.
_LONGEST = 3_800
_MENTION = re.compile(r"<(?=[!@#])")
_JSON = "application/json; charset=utf-8"
# The message was deleted, or Slack no longer lets it be changed: the reply needs another one.
_GONE = frozenset(("message_not_found", "cant_update_message", "edit_window_closed"))
# The stream's end has not reached the server that was asked.
_STREAMING = "streaming_state_conflict"
# What the fields of a message for `chat.postMessage` and `chat.update` have in common.
_UPDATED = ("text", "blocks")


class _Started(msgspec.Struct):
    ok: bool
    error: str = "unknown_error"
    ts: str | None = None


class _Posted(msgspec.Struct):
    ts: str
    bot_id: str | None = None
    metadata: dict[str, Any] | None = None


class _Thread(msgspec.Struct):
    ok: bool
    error: str = "unknown_error"
    messages: list[Any] = []


class SlackStreams:
    """The streaming part of the codec."""

    _api: str

    def _headers(self, secrets: Mapping[str, str], content_type: str, name: str = "bot_token") -> dict[str, str]:
        raise NotImplementedError

    def parse_response(self, response: HttpResponse) -> Outcome:
        raise NotImplementedError

    def can_stream(self, recipient: str) -> bool:
        return recipient.startswith("D") and ":" in recipient

    def stream_text(self, text: str) -> str:
        # A reply cannot mention anybody. What is shown until then must not either.
        return _MENTION.sub("< ", text)[:_LONGEST]

    def build_stream(self, secrets: Mapping[str, str], recipient: str, text: str) -> HttpRequest:
        channel, _, thread_ts = recipient.partition(":")
        return self._call(secrets, "chat.startStream", {"channel": channel, "thread_ts": thread_ts}, text)

    def parse_stream(self, response: HttpResponse) -> str | None:
        answer = parse_body(response, _Started)
        return answer.ts if answer is not None and answer.ok else None

    def build_stream_text(self, secrets: Mapping[str, str], recipient: str, message_id: str, text: str) -> HttpRequest:
        return self._call(secrets, "chat.appendStream", _named(recipient, message_id), text)

    def build_stream_end(self, secrets: Mapping[str, str], recipient: str, message_id: str) -> HttpRequest:
        return self._call(secrets, "chat.stopStream", _named(recipient, message_id))

    def build_stream_reply(
        self, secrets: Mapping[str, str], recipient: str, message_id: str, payload: str, key: str
    ) -> HttpRequest:
        given = jsontext.parse(payload, "payload")
        message = {name: given[name] for name in _UPDATED if name in given}
        message["metadata"] = {"event_type": "threadline_delivery", "event_payload": {"id": key}}
        return self._call(secrets, "chat.update", {**_named(recipient, message_id), **message})

    def parse_stream_reply(self, response: HttpResponse) -> Outcome | None:
        answer = parse_body(response, _Started)
        if response.status == 200 and answer is not None and answer.error in _GONE:
            return None
        if response.status == 200 and answer is not None and answer.error == _STREAMING:
            return Transient(_STREAMING)
        return self.parse_response(response)

    def parse_open_stream(self, response: HttpResponse) -> str | Transient | None:
        answer = parse_body(response, _Thread)
        if answer is None or response.status != 200:
            failure = failure_for_status(response, f"http_{response.status}")
            return None if isinstance(failure, Permanent) else failure
        posted = [message for each in answer.messages if (message := convert_or_none(each, _Posted)) is not None]
        open_streams = [message.ts for message in posted if message.bot_id is not None and not message.metadata]
        return open_streams[-1] if open_streams else None

    def _call(self, secrets: Mapping[str, str], method: str, given: dict[str, Any], text: str = "") -> HttpRequest:
        body = {**given, "markdown_text": text} if text else given
        headers = self._headers(secrets, _JSON)
        return HttpRequest("POST", f"{self._api}/{method}", headers, jsontext.dump(body, "payload"))


def _named(recipient: str, message_id: str) -> dict[str, Any]:
    return {"channel": recipient.partition(":")[0], "ts": message_id}

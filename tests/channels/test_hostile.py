"""Codecs with hostile bodies and responses: they raise only the errors they document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.channels.deliveries import slack, slack_message, telegram, telegram_message, whatsapp, whatsapp_message
from threadline.channels.slack import Slack
from threadline.channels.telegram import Telegram
from threadline.channels.whatsapp import WhatsApp
from threadline.core.errors import InvalidJson, LimitExceeded
from threadline.core.ids import check_user_id
from threadline.core.platform_messages import Delivery, HttpResponse
from threadline.ports import Channel

SAMPLES: list[tuple[Channel, bytes]] = [
    (Slack(), slack(slack_message(files=[{"name": "a"}], thread_ts="1.2"))),
    (Telegram(), telegram(telegram_message(entities=[{"type": "text_link", "offset": 0, "length": 2, "url": "x"}]))),
    (Telegram(), telegram(telegram_message(None, document={"file_name": "a"}, reply_to_message={"message_id": 1}))),
    (WhatsApp(), whatsapp(whatsapp_message(), whatsapp_message(None, type="image", image={"caption": "x"}))),
    (WhatsApp(), whatsapp(statuses=[{"status": "failed", "biz_opaque_callback_data": "k", "errors": [{"code": 1}]}])),
]
SECRETS = {"bot_token": "1:token", "access_token": "token"}
ODD: list[Any] = [None, True, 0, -1, 10**40, 1.5, 1e300, "", "\ud800", "\x00", "9" * 5000, [], [[]], {}, {"a": {}}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of the value with every key or index in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def check(channel: Channel, delivery: Delivery) -> None:
    for arrival in delivery.arrivals:
        channel.build_request(SECRETS, arrival.recipient, channel.render("hi")[0], "key")
        check_user_id(arrival.sender)
        assert arrival.text.strip()
        assert arrival.key
        assert arrival.sent_at.tzinfo is not None
        arrival.text.encode()
        assert "\x00" not in arrival.text


@pytest.mark.parametrize(("channel", "body"), SAMPLES)
def test_one_unexpected_value_anywhere_in_a_body_is_ignored_or_parsed(channel: Channel, body: bytes) -> None:
    for number in range(len(list(places(json.loads(body))))):
        for odd in ODD:
            value = json.loads(body)
            container, key = list(places(value))[number]
            container[key] = odd
            check(channel, channel.parse_webhook(json.dumps(value).encode()))


@pytest.mark.parametrize(("channel", "body"), SAMPLES)
def test_one_missing_value_anywhere_in_a_body_is_ignored_or_parsed(channel: Channel, body: bytes) -> None:
    for number in range(len(list(places(json.loads(body))))):
        value = json.loads(body)
        container, key = list(places(value))[number]
        del container[key]
        check(channel, channel.parse_webhook(json.dumps(value).encode()))


@pytest.mark.parametrize("channel", [Slack(), Telegram(), WhatsApp()], ids=lambda channel: channel.platform)
@settings(max_examples=40, deadline=None)
@given(body=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), status=st.integers(200, 599))
def test_any_body_and_any_response_are_parsed(channel: Channel, body: bytes, status: int) -> None:
    with suppress(InvalidJson, LimitExceeded):
        check(channel, channel.parse_webhook(body))
    channel.parse_response(HttpResponse(status, {}, body))
    if isinstance(channel, Telegram):
        channel.parse_poll_response(HttpResponse(status, {}, body))


@pytest.mark.parametrize("channel", [Slack(), Telegram(), WhatsApp()], ids=lambda channel: channel.platform)
@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"a":' * 100_000, b'{"a":"' + b"x" * 1_000_000 + b'"}', b"9" * 100_000]
)
def test_large_and_deep_bodies_are_parsed_or_refused(channel: Channel, body: bytes) -> None:
    with suppress(InvalidJson, LimitExceeded):
        check(channel, channel.parse_webhook(body))
    channel.parse_response(HttpResponse(200, {}, body))

"""The Telegram codec: the webhook secret, incoming messages, requests, responses, polling."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from tests.channels.deliveries import telegram, telegram_message
from threadline.channels.telegram import Telegram
from threadline.core.errors import InvalidJson, NotFound, SettingsInvalid, SignatureInvalid
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    HttpResponse,
    Ignored,
    Permanent,
    Polled,
    Sent,
    Transient,
)

SECRETS = {"bot_token": "123456:AAH-secret_token", "webhook_secret": "a-word_of-our-own"}
NOW = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
HEADER = "X-Telegram-Bot-Api-Secret-Token"
CHANNEL = Telegram()
COMMAND = [{"type": "bot_command", "offset": 0, "length": 5}]
GROUP = {"id": -100200300, "type": "supergroup", "title": "all"}


def arrival(message: dict[str, Any]) -> Arrival:
    (found,) = CHANNEL.parse_webhook(telegram(message)).arrivals
    return found


def reason(body: bytes) -> str:
    delivery = CHANNEL.parse_webhook(body)
    assert delivery.arrivals == ()
    return delivery.ignored[0].reason


class TestSecret:
    @pytest.mark.req("S3-10", "S3-13")
    def test_the_webhook_secret_is_accepted(self) -> None:
        CHANNEL.verify(SECRETS, [(HEADER, SECRETS["webhook_secret"])], b"{}", NOW)

    @pytest.mark.req("S3-10", "S3-13")
    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [(HEADER, "")],
            [(HEADER, "another")],
            [(HEADER, "a-word_of-our-own ")],
            [(HEADER, "wörd")],
            [(HEADER, "\udcff")],
            [(HEADER, "a-word_of-our-own"), (HEADER.lower(), "a-word_of-our-own")],
        ],
    )
    def test_any_other_secret_is_refused(self, headers: list[tuple[str, str]]) -> None:
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, headers, b"{}", NOW)

    @pytest.mark.req("S3-10")
    def test_without_a_secret_nothing_is_verified(self) -> None:
        for secrets in ({}, {"webhook_secret": ""}):
            with pytest.raises(SignatureInvalid):
                CHANNEL.verify(secrets, [(HEADER, "")], b"{}", NOW)

    def test_there_is_no_handshake_by_get(self) -> None:
        with pytest.raises(NotFound):
            CHANNEL.answer_handshake(SECRETS, {})


class TestArrivals:
    @pytest.mark.req("S3-13", "S3-18")
    def test_a_message_is_identified_by_chat_and_number(self) -> None:
        assert arrival(telegram_message("hello")) == Arrival(
            platform="telegram",
            key="111:42",
            sender="111",
            place="111",
            recipient="111",
            text="hello",
            sent_at=dt.datetime.fromtimestamp(1_700_000_000, dt.UTC),
        )

    @pytest.mark.req("S3-13")
    def test_in_a_group_the_reply_is_sent_to_the_group_and_topic(self) -> None:
        found = arrival(telegram_message("/help", chat=GROUP, entities=COMMAND))
        assert (found.place, found.recipient, found.sender, found.shared) == ("-100200300", "-100200300", "111", True)
        in_topic = telegram_message("/help", chat=GROUP, entities=COMMAND, message_thread_id=7, is_topic_message=True)
        topic = arrival(in_topic)
        assert (topic.place, topic.recipient) == ("-100200300:7", "-100200300:7")
        (whole,) = Telegram(by_thread=False).parse_webhook(telegram(in_topic)).arrivals
        assert (whole.place, whole.recipient) == ("-100200300", "-100200300:7")

    def test_a_reply_names_the_message_it_replies_to(self) -> None:
        assert arrival(telegram_message("yes", reply_to_message=telegram_message(message_id=40))).reply_to == "111:40"

    @pytest.mark.parametrize(
        ("text", "kind", "said"),
        [
            ("/new plans", "bot_command", "!new plans"),
            ("/help@our_bot", "bot_command", "!help"),
            ("/start", "bot_command", "!help"),
            ("/start AB12-CD34", "bot_command", "!link AB12-CD34"),
            ("@our_bot, hello", "mention", "hello"),
            ("@alice hello", "mention", "@alice hello"),
            ("/etc/passwd", "url", "/etc/passwd"),
        ],
    )
    def test_commands_and_the_bots_name_are_normalized(self, text: str, kind: str, said: str) -> None:
        length = len(text.split()[0].rstrip(","))
        assert arrival(telegram_message(text, entities=[{"type": kind, "offset": 0, "length": length}])).text == said

    @pytest.mark.parametrize(
        ("offset", "length", "said"),
        [
            (3, 4, "😀 here (https://a.example) x"),
            (3, 400, "😀 here x (https://a.example)"),
            (300, 4, "😀 here x"),
            (-1, 4, "😀 here x"),
            (3, -4, "😀 here x"),
            (0, 1, "😀 (https://a.example) here x"),
            (10**30, 10**30, "😀 here x"),
        ],
    )
    def test_hidden_urls_are_shown_and_invalid_ranges_clipped(self, offset: int, length: int, said: str) -> None:
        entity = {"type": "text_link", "offset": offset, "length": length, "url": "https://a.example"}
        assert arrival(telegram_message("😀 here x", entities=[entity])).text == said

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"photo": [{"file_id": "x"}], "caption": "look"}, "look\n[photo]"),
            (
                {"document": {"file_name": "a.pdf", "mime_type": "application/pdf"}},
                "[document: a.pdf (application/pdf)]",
            ),
            ({"voice": {"file_id": "x", "mime_type": "audio/ogg"}}, "[voice: audio/ogg]"),
            ({"sticker": {"emoji": "👍"}}, "[sticker: 👍]"),
            ({"location": {"latitude": 1.5, "longitude": 2.0}}, "[location: 1.5, 2.0]"),
            ({"venue": {"title": "Café"}, "location": {"latitude": 1.5, "longitude": 2.0}}, "[venue: Café]"),
            ({"poll": {"question": "Tea?"}}, "[poll: Tea?]"),
            ({"video_note": {}}, "[video note]"),
        ],
    )
    def test_media_become_placeholders(self, changes: dict[str, Any], said: str) -> None:
        assert arrival(telegram_message(None, **changes)).text == said

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (telegram(edited_message=telegram_message("edited")), "broken"),
            (telegram(my_chat_member={}), "membership"),
            (telegram(channel_post=telegram_message("post")), "unaddressed"),
            (telegram(callback_query={"id": "1"}), "unknown"),
            (telegram(), "unknown"),
            (telegram(telegram_message("hi", **{"from": {"id": 5, "is_bot": True}})), "bot"),
            (telegram(telegram_message("hi", sender_chat={"id": -1})), "unaddressed"),
            (telegram(telegram_message(None, new_chat_members=[{"id": 5}])), "membership"),
            (telegram(telegram_message(None)), "unknown"),
            (telegram(telegram_message(" \u3000 ")), "empty"),
            (telegram(telegram_message(date=10**18)), "broken"),
            (telegram(telegram_message(chat={"id": "x"})), "broken"),
            (telegram({}), "broken"),
            (b'{"message":{}}', "broken"),
            (b"[]", "broken"),
        ],
    )
    def test_ignored_messages_have_a_reason(self, body: bytes, why: str) -> None:
        assert reason(body) == why

    @pytest.mark.req("S3-19")
    def test_a_body_that_is_not_json_is_refused(self) -> None:
        with pytest.raises(InvalidJson):
            CHANNEL.parse_webhook(b"update_id=1")


class TestSending:
    @pytest.mark.req("S3-13")
    def test_a_request_has_its_chat(self) -> None:
        (payload,) = CHANNEL.render("**hi** 😀 *you*")
        request = CHANNEL.build_request(SECRETS, "-100200300:7", payload, "k")
        assert request.url == "https://api.telegram.org/bot123456:AAH-secret_token/sendMessage"
        assert "secret_token" not in repr(request)
        body = json.loads(request.body)
        assert (body["chat_id"], body["message_thread_id"], body["text"]) == (-100200300, 7, "hi 😀 you")
        assert body["entities"] == [
            {"type": "bold", "offset": 0, "length": 2},
            {"type": "italic", "offset": 6, "length": 3},
        ]
        assert body["link_preview_options"] == {"is_disabled": True}

    @pytest.mark.parametrize("token", ["", "123", "123:a/../b", "123:a\n", "x:abc"])
    def test_an_invalid_token_is_a_settings_error(self, token: str) -> None:
        with pytest.raises(SettingsInvalid):
            CHANNEL.build_request({"bot_token": token}, "1", CHANNEL.render("hi")[0], "k")

    @pytest.mark.parametrize("recipient", ["", "@channel", "1:2:3", "1/2", "٣"])
    def test_an_invalid_recipient_is_refused(self, recipient: str) -> None:
        with pytest.raises(SettingsInvalid):
            CHANNEL.build_request(SECRETS, recipient, CHANNEL.render("hi")[0], "k")

    @pytest.mark.parametrize(
        ("status", "body", "outcome"),
        [
            (200, {"ok": True, "result": {"message_id": 9}}, Sent("9")),
            (200, {"ok": True}, Sent(None)),
            (200, "", Ambiguous("the response could not be read")),
            (
                429,
                {"ok": False, "description": "Too Many Requests", "parameters": {"retry_after": 12}},
                Transient("Too Many Requests", 12),
            ),
            (403, {"ok": False, "description": "Forbidden: bot was blocked"}, Permanent("Forbidden: bot was blocked")),
            (
                400,
                {"ok": False, "description": "Bad Request: chat not found"},
                Permanent("Bad Request: chat not found"),
            ),
            (502, "<html>", Transient("http_502", None, is_outage=True)),
            (400, {"ok": False}, Permanent("http_400")),
        ],
    )
    def test_a_response_has_its_outcome(self, status: int, body: Any, outcome: object) -> None:
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        assert CHANNEL.parse_response(HttpResponse(status, {}, raw)) == outcome


class TestAsking:
    def test_polling_confirms_earlier_updates(self) -> None:
        assert json.loads(CHANNEL.build_poll_request(SECRETS, 0, 25).body).keys() == {
            "timeout",
            "limit",
            "allowed_updates",
        }
        assert json.loads(CHANNEL.build_poll_request(SECRETS, 41, 25).body)["offset"] == 42

    def test_updates_become_deliveries_and_a_broken_one_affects_no_other(self) -> None:
        updates = [json.loads(telegram(telegram_message("one"))), {"update_id": 10_007}, "?"]
        found = CHANNEL.parse_poll_response(HttpResponse(200, {}, json.dumps({"ok": True, "result": updates}).encode()))
        assert isinstance(found, Polled)
        assert found.last == 10_007
        assert [len(delivery.arrivals) for delivery in found.deliveries] == [1, 0, 0]
        assert found.deliveries[2].ignored == (Ignored("broken", "update"),)

    @pytest.mark.parametrize(
        ("status", "body", "kind"),
        [
            (409, {"ok": False}, Transient),
            (401, {"ok": False}, Permanent),
            (200, "?", Transient),
            (500, "?", Transient),
        ],
    )
    def test_a_failed_poll_is_transient_or_permanent(self, status: int, body: Any, kind: type) -> None:
        assert isinstance(CHANNEL.parse_poll_response(HttpResponse(status, {}, json.dumps(body).encode())), kind)

    def test_an_empty_poll_has_no_deliveries(self) -> None:
        assert CHANNEL.parse_poll_response(HttpResponse(200, {}, b'{"ok":true,"result":[]}')) == Polled()

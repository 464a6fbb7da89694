"""The WhatsApp codec: signatures, the handshake, incoming messages, requests, responses."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, ClassVar

import pytest

from tests.channels.deliveries import NUMBER_ID, whatsapp, whatsapp_message
from threadline.channels.whatsapp import WhatsApp, signature
from threadline.core.errors import InvalidJson, NotFound, SettingsInvalid, SignatureInvalid
from threadline.core.platform_messages import (
    Ambiguous,
    Arrival,
    HttpResponse,
    Ignored,
    Permanent,
    Report,
    Sent,
    Transient,
    WindowClosed,
)

SECRETS = {"app_secret": "0123456789abcdef", "access_token": "EAAG-token", "verify_token": "our-word"}
NOW = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
CHANNEL = WhatsApp()
HEADER = "X-Hub-Signature-256"


def arrival(message: dict[str, Any]) -> Arrival:
    (found,) = CHANNEL.parse_webhook(whatsapp(message)).arrivals
    return found


class TestSignatures:
    @pytest.mark.req("S3-10", "S3-12")
    @pytest.mark.parametrize(
        "body", [whatsapp(whatsapp_message()), b'{"text":"\\u00e9"}', '{"text":"é"}'.encode(), b"\xff"]
    )
    def test_the_signature_covers_the_raw_bytes(self, body: bytes) -> None:
        CHANNEL.verify(SECRETS, [(HEADER, signature(SECRETS["app_secret"], body))], body, NOW)

    @pytest.mark.req("S3-10", "S3-12")
    def test_reserialized_json_does_not_match(self) -> None:
        headers = [(HEADER, signature(SECRETS["app_secret"], b'{"text":"\\u00e9"}'))]
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, headers, '{"text":"é"}'.encode(), NOW)

    @pytest.mark.req("S3-10", "S3-12")
    def test_a_missing_old_repeated_or_foreign_signature_is_refused(self) -> None:
        right = (HEADER, signature(SECRETS["app_secret"], b"{}"))
        foreign = (HEADER, signature("another app's", b"{}"))
        bare = (HEADER, right[1].removeprefix("sha256="))
        for headers in (
            [],
            [("X-Hub-Signature", "sha1=00")],
            [right, right],
            [foreign],
            [bare],
            [(HEADER, "sha256=é")],
        ):
            with pytest.raises(SignatureInvalid):
                CHANNEL.verify(SECRETS, headers, b"{}", NOW)
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify({}, [right], b"{}", NOW)


class TestHandshake:
    ASKED: ClassVar = {"hub.mode": "subscribe", "hub.verify_token": "our-word", "hub.challenge": "1158201444"}

    @pytest.mark.req("S3-12")
    def test_the_challenge_is_returned_for_the_right_verify_token(self) -> None:
        assert CHANNEL.answer_handshake(SECRETS, self.ASKED) == "1158201444"

    @pytest.mark.req("S3-12")
    @pytest.mark.parametrize(
        "change",
        [
            {"hub.verify_token": "another"},
            {"hub.verify_token": "wörd"},
            {"hub.verify_token": ""},
            {"hub.mode": "unsubscribe"},
            {"hub.challenge": ""},
            {"hub.challenge": "a b"},
            {"hub.challenge": "1" * 300},
        ],
    )
    def test_other_requests_get_no_challenge(self, change: dict[str, str]) -> None:
        with pytest.raises(SignatureInvalid):
            CHANNEL.answer_handshake(SECRETS, {**self.ASKED, **change})

    def test_without_a_verify_token_there_is_no_handshake(self) -> None:
        with pytest.raises(SignatureInvalid):
            CHANNEL.answer_handshake({"verify_token": ""}, {**self.ASKED, "hub.verify_token": ""})

    def test_a_get_without_parameters_is_not_found(self) -> None:
        with pytest.raises(NotFound):
            CHANNEL.answer_handshake(SECRETS, {})


class TestArrivals:
    @pytest.mark.req("S3-18")
    def test_a_message_is_identified_by_its_wamid(self) -> None:
        assert arrival(whatsapp_message("hello")) == Arrival(
            platform="whatsapp",
            key="wamid.HBgLMTY1MDU1NTEyMzQVAgASGBQzQQ==",
            sender="16505551234",
            place=f"{NUMBER_ID}:16505551234",
            recipient=f"{NUMBER_ID}:16505551234",
            text="hello",
            sent_at=dt.datetime.fromtimestamp(1_700_000_000, dt.UTC),
        )

    @pytest.mark.req("S3-12")
    def test_one_broken_message_of_fifty_does_not_affect_the_others(self) -> None:
        batch: list[Any] = [whatsapp_message(f"message {n}", id=f"wamid.{n}") for n in range(50)]
        batch[17] = {"from": 5, "type": "text"}
        delivery = CHANNEL.parse_webhook(whatsapp(*batch))
        assert [found.key for found in delivery.arrivals] == [f"wamid.{n}" for n in range(50) if n != 17]
        assert delivery.ignored == (Ignored("broken", "message"),)

    @pytest.mark.req("S3-12")
    def test_a_status_starts_no_turn_and_a_failed_one_is_reported(self) -> None:
        statuses: list[Any] = [
            {"id": "wamid.1", "status": "delivered", "timestamp": "1", "biz_opaque_callback_data": "outbox-1"},
            {"id": "wamid.2", "status": "read", "timestamp": "1"},
            {
                "status": "failed",
                "biz_opaque_callback_data": "outbox-2",
                "errors": [{"code": 131047, "title": "Re-engagement message"}],
            },
            {"status": "failed", "biz_opaque_callback_data": "outbox-3", "errors": [{"code": 131026}]},
            "?",
        ]
        delivery = CHANNEL.parse_webhook(whatsapp(statuses=statuses))
        assert delivery.arrivals == ()
        assert [found.reason for found in delivery.ignored] == ["status"] * 4 + ["broken"]
        assert delivery.reports == (
            Report("outbox-1", Sent()),
            Report("outbox-2", WindowClosed("131047 Re-engagement message")),
            Report("outbox-3", Permanent("131026")),
        )

    def test_a_user_without_a_visible_number_is_identified_by_id(self) -> None:
        message = whatsapp_message("hello", from_user_id="US.13491208655302741918")
        del message["from"]
        found = arrival(message)
        assert (found.sender, found.recipient) == ("US.13491208655302741918", f"{NUMBER_ID}:US.13491208655302741918")

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"type": "image", "image": {"caption": "look", "mime_type": "image/jpeg"}}, "look\n[image: image/jpeg]"),
            ({"type": "document", "document": {"filename": "a.pdf"}}, "[document: a.pdf]"),
            ({"type": "audio", "audio": {"mime_type": "audio/ogg"}}, "[audio: audio/ogg]"),
            ({"type": "button", "button": {"text": "Yes"}}, "Yes"),
            ({"type": "interactive", "interactive": {"list_reply": {"id": "1", "title": "Tea"}}}, "Tea"),
            ({"type": "location", "location": {"latitude": 1.5, "longitude": 2}}, "[location: 1.5, 2.0]"),
            ({"type": "contacts", "contacts": [{"name": {"formatted_name": "Bob"}}]}, "[contact: Bob]"),
        ],
    )
    def test_media_become_placeholders(self, changes: dict[str, Any], said: str) -> None:
        assert arrival(whatsapp_message(None, **changes)).text == said

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            (whatsapp_message(None, type="reaction", reaction={"emoji": "👍"}), "unknown"),
            (whatsapp_message(None, type="system"), "membership"),
            (whatsapp_message(None, type="edit"), "edit"),
            (whatsapp_message(None, type="revoke"), "deletion"),
            (whatsapp_message("hi", group_id="g"), "unknown"),
            (whatsapp_message(" "), "empty"),
            (whatsapp_message(**{"from": "15550783881"}), "own"),
            (whatsapp_message(**{"from": "1/../2"}), "broken"),
            (whatsapp_message(timestamp="now"), "broken"),
            (whatsapp_message(id=""), "broken"),
        ],
    )
    def test_ignored_messages_have_a_reason(self, message: dict[str, Any], reason: str) -> None:
        delivery = CHANNEL.parse_webhook(whatsapp(message))
        assert (delivery.arrivals, [found.reason for found in delivery.ignored]) == ((), [reason])

    def test_broken_layers_are_acknowledged(self) -> None:
        for body in (
            b"[]",
            b'{"object":"x"}',
            b'{"object":"x","entry":[1]}',
            b'{"object":"x","entry":[{"changes":[1]}]}',
        ):
            assert CHANNEL.parse_webhook(body).ignored[0].reason == "broken"
        assert CHANNEL.parse_webhook(whatsapp(field="account_update")).ignored == (
            Ignored("unknown", "account_update"),
        )

    @pytest.mark.req("S3-19")
    def test_a_body_that_is_not_json_is_refused(self) -> None:
        with pytest.raises(InvalidJson):
            CHANNEL.parse_webhook(b"{'object': 1}")


class TestSending:
    RECIPIENT = f"{NUMBER_ID}:16505551234"

    def test_a_request_has_its_recipient_and_key(self) -> None:
        (payload,) = CHANNEL.render("**hi** [you](https://a.example)")
        request = CHANNEL.build_request(SECRETS, self.RECIPIENT, payload, "outbox-1")
        assert request.url == f"https://graph.facebook.com/v23.0/{NUMBER_ID}/messages"
        assert "EAAG" not in repr(request)
        assert json.loads(request.body) == {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": "16505551234",
            "biz_opaque_callback_data": "outbox-1",
            "type": "text",
            "text": {"preview_url": False, "body": "*hi* you (https://a.example)"},
        }

    @pytest.mark.parametrize("recipient", ["", "16505551234", "1/2:3", ":3", "1:", "1:+3"])
    def test_an_invalid_recipient_is_refused(self, recipient: str) -> None:
        with pytest.raises(SettingsInvalid):
            CHANNEL.build_request(SECRETS, recipient, CHANNEL.render("hi")[0], "k")

    @pytest.mark.parametrize(
        ("status", "body", "outcome"),
        [
            (200, {"messages": [{"id": "wamid.9"}]}, Sent("wamid.9")),
            (200, {"messages": []}, Ambiguous("the response could not be read")),
            (200, "?", Ambiguous("the response could not be read")),
            (400, {"error": {"code": 131047, "message": "Re-engagement"}}, WindowClosed("131047 Re-engagement")),
            (400, {"error": {"code": 131056, "message": "pair rate"}}, Transient("131056 pair rate", None)),
            (400, {"error": {"code": 130429}}, Transient("130429", None)),
            (400, {"error": {"code": 100, "message": "Invalid parameter"}}, Permanent("100 Invalid parameter")),
            (401, {"error": {"code": 190}}, Permanent("190")),
            (500, {"error": {"code": 99}}, Transient("99", None, is_outage=True)),
            (503, "", Transient("http_503", None, is_outage=True)),
        ],
    )
    def test_a_response_has_its_outcome(self, status: int, body: Any, outcome: object) -> None:
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        assert CHANNEL.parse_response(HttpResponse(status, {}, raw)) == outcome

"""The Slack codec: signatures, incoming messages, requests, responses."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from tests.channels.deliveries import BOT, slack, slack_message
from threadline.channels.slack import Slack, signature
from threadline.core.errors import InvalidJson, LimitExceeded, NotFound, SettingsInvalid, SignatureInvalid
from threadline.core.platform_messages import Ambiguous, Arrival, HttpResponse, Ignored, Permanent, Sent, Transient

SECRETS = {"signing_secret": "8f742231b10e8888abcd99yyyzzz85a5", "bot_token": "xoxb-1-2-three"}
NOW = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
STAMP = str(int(NOW.timestamp()))
CHANNEL = Slack()


def signed(body: bytes, stamp: str = STAMP, secret: str = SECRETS["signing_secret"]) -> list[tuple[str, str]]:
    return [("X-Slack-Request-Timestamp", stamp), ("X-Slack-Signature", signature(secret, stamp, body))]


def arrival(event: dict[str, Any], bot: str | None = BOT) -> Arrival:
    (found,) = CHANNEL.parse_webhook(slack(event, bot=bot)).arrivals
    return found


def ignored(event: Any) -> Ignored:
    delivery = CHANNEL.parse_webhook(slack(event))
    assert delivery.arrivals == ()
    return delivery.ignored[0]


class TestSignatures:
    @pytest.mark.req("S3-10", "S3-11")
    @pytest.mark.parametrize("late", [-300, 0, 300])
    def test_a_signature_of_the_last_five_minutes_is_accepted(self, late: int) -> None:
        body = slack(slack_message())
        CHANNEL.verify(SECRETS, signed(body, str(int(NOW.timestamp()) + late)), body, NOW)

    @pytest.mark.req("S3-10", "S3-11")
    @pytest.mark.parametrize("late", [-301, 301])
    def test_a_stale_or_future_signature_is_refused(self, late: int) -> None:
        body = slack(slack_message())
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, signed(body, str(int(NOW.timestamp()) + late)), body, NOW)

    @pytest.mark.req("S3-10", "S3-11")
    @pytest.mark.parametrize(
        "stamp", ["abc", "", "1e30", "-5", f" {STAMP}", f"{STAMP} ", f"+{STAMP}", f"{STAMP}.0", "９" * 10, "1" * 400]
    )
    def test_an_invalid_timestamp_is_refused(self, stamp: str) -> None:
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, signed(b"{}", stamp), b"{}", NOW)

    @pytest.mark.req("S3-10", "S3-11")
    def test_a_reserialized_body_does_not_match_its_signature(self) -> None:
        body = slack(slack_message("naïve"))
        again = json.dumps(json.loads(body), ensure_ascii=False).encode()
        assert again != body
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, signed(body), again, NOW)

    @pytest.mark.req("S3-10")
    @pytest.mark.parametrize("wrong", ["", "v0=", "v0=" + "0" * 64, "v0=ünï", "\ud800", "v1=" + "0" * 64])
    def test_any_wrong_signature_is_refused(self, wrong: str) -> None:
        headers = [("X-Slack-Request-Timestamp", STAMP), ("X-Slack-Signature", wrong)]
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, headers, b"{}", NOW)

    @pytest.mark.req("S3-10")
    def test_a_missing_or_repeated_header_is_refused(self) -> None:
        right = signed(b"{}")
        for headers in ([], right[:1], right[1:], [*right, right[1]], [*right, ("x-slack-request-TIMESTAMP", STAMP)]):
            with pytest.raises(SignatureInvalid):
                CHANNEL.verify(SECRETS, headers, b"{}", NOW)

    @pytest.mark.req("S3-10")
    def test_another_tenants_secret_or_no_secret_is_refused(self) -> None:
        headers = signed(b"{}", secret="another tenant's")
        for secrets in (SECRETS, {}, {"signing_secret": ""}):
            with pytest.raises(SignatureInvalid):
                CHANNEL.verify(secrets, headers, b"{}", NOW)

    def test_header_names_may_be_in_any_case(self) -> None:
        CHANNEL.verify(SECRETS, [(name.upper(), value) for name, value in signed(b"{}")], b"{}", NOW)

    def test_there_is_no_handshake_by_get(self) -> None:
        with pytest.raises(NotFound):
            CHANNEL.answer_handshake(SECRETS, {"hub.mode": "subscribe"})


class TestArrivals:
    def test_a_direct_message_is_answered_where_it_was_written(self) -> None:
        assert arrival(slack_message("hello")) == Arrival(
            platform="slack",
            key="D0001:1700000000.000100",
            sender="U0001",
            place="D0001",
            recipient="D0001",
            text="hello",
            sent_at=dt.datetime.fromtimestamp(1_700_000_000.0001, dt.UTC),
        )

    @pytest.mark.req("S3-18")
    def test_a_text_sent_as_message_and_mention_has_one_key(self) -> None:
        said = slack_message(f"<@{BOT}> hello", channel="C0001", channel_type="channel")
        mention = {**said, "type": "app_mention"}
        del mention["channel_type"], mention["client_msg_id"]
        assert arrival(said) == arrival(mention)
        assert arrival(said).text == "hello"
        assert arrival(said).shared

    def test_in_a_channel_the_reply_is_sent_to_the_thread(self) -> None:
        said = slack_message(f"<@{BOT}> hello", channel="C0001", channel_type="channel")
        assert arrival(said).recipient == "C0001:1700000000.000100"
        inside = arrival({**said, "thread_ts": "1699999999.000001"})
        assert (inside.recipient, inside.place) == ("C0001:1699999999.000001",) * 2
        assert inside.reply_to == "C0001:1699999999.000001"

    def test_channel_messages_for_others_are_ignored(self) -> None:
        assert ignored(slack_message("hello", channel="C0001", channel_type="channel")).reason == "unaddressed"

    def test_files_become_placeholders_and_are_not_fetched(self) -> None:
        files = [{"name": "a\nb.pdf", "mimetype": "application/pdf", "url_private": "http://169.254.169.254/"}, {}]
        found = arrival(slack_message("look", subtype="file_share", files=files))
        assert found.text == "look\n[file: a b.pdf (application/pdf)]\n[file]"

    def test_references_become_text(self) -> None:
        text = "<@U2|bob> in <#C1|general>: <https://a.example|this>, <https://b.example>, <!here> &lt;b&gt; &amp;lt;"
        assert arrival(slack_message(text)).text == (
            "@bob in #general: this (https://a.example), https://b.example, @here <b> &lt;"
        )

    def test_a_mention_alone_is_ignored_as_empty(self) -> None:
        assert ignored(slack_message(f"<@{BOT}> ")).reason == "empty"

    def test_without_an_authorization_the_first_mention_counts_as_the_bots(self) -> None:
        mention = slack_message("<@U9> hello", type="app_mention", channel="C0001")
        assert arrival(mention, bot=None).text == "hello"

    def test_lone_surrogates_and_nuls_are_replaced(self) -> None:
        assert arrival(slack_message("a\ud83db\x00")).text == "a\ufffdb\ufffd"

    @pytest.mark.req("S3-11")
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"user": BOT}, "own"),
            ({"bot_id": "B1"}, "bot"),
            ({"subtype": "bot_message"}, "bot"),
            ({"subtype": "message_changed"}, "edit"),
            ({"subtype": "message_deleted"}, "deletion"),
            ({"subtype": "channel_join"}, "membership"),
            ({"subtype": "a_new_one"}, "unknown"),
            ({"type": "reaction_added"}, "unknown"),
            ({"ts": "yesterday"}, "broken"),
            ({"ts": "999999999999.0"}, "broken"),
            ({"text": ["hello"]}, "broken"),
            ({"user": None}, "broken"),
            ({"user": ""}, "broken"),
        ],
    )
    def test_ignored_messages_have_a_reason(self, changes: dict[str, Any], reason: str) -> None:
        assert ignored(slack_message(**changes)).reason == reason

    def test_an_invalid_event_is_ignored_as_broken(self) -> None:
        events: list[Any] = [None, [], "message", {"type": 5}]
        for event in events:
            assert ignored(event).reason == "broken"

    @pytest.mark.req("S3-11")
    def test_the_challenge_is_returned(self) -> None:
        delivery = CHANNEL.parse_webhook(b'{"type":"url_verification","token":"t","challenge":"3eZbrw1a"}')
        assert delivery.challenge == "3eZbrw1a"

    def test_app_rate_limited_is_acknowledged(self) -> None:
        assert CHANNEL.parse_webhook(b'{"type":"app_rate_limited","team_id":"T1"}').ignored == (
            Ignored("unknown", "app_rate_limited"),
        )

    @pytest.mark.req("S3-19")
    @pytest.mark.parametrize(
        "body", [b"", b"{", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"nope", b'{"a":NaN}', b"payload=%7B"]
    )
    def test_a_body_that_is_not_json_is_refused(self, body: bytes) -> None:
        with pytest.raises(InvalidJson):
            CHANNEL.parse_webhook(body)

    def test_a_body_that_is_nested_too_deeply_is_refused(self) -> None:
        with pytest.raises(LimitExceeded):
            CHANNEL.parse_webhook(b'{"type":' + b"[" * 10_000 + b"]" * 10_000 + b"}")

    def test_json_without_an_envelope_is_acknowledged(self) -> None:
        for body in (b"[]", b"null", b"{}", b'{"type":{}}', b'"text"'):
            assert CHANNEL.parse_webhook(body).ignored == (Ignored("broken", "envelope"),)


class TestSending:
    def test_a_request_has_its_channel_and_key(self) -> None:
        (payload,) = CHANNEL.render("**hi**")
        request = CHANNEL.build_request(SECRETS, "C0001:1700000000.000100", payload, "outbox-1")
        assert (request.method, request.url) == ("POST", "https://slack.com/api/chat.postMessage")
        assert request.headers["authorization"] == "Bearer xoxb-1-2-three"
        body = json.loads(request.body)
        assert (body["channel"], body["thread_ts"], body["text"]) == ("C0001", "1700000000.000100", "*hi*")
        assert (body["unfurl_links"], body["unfurl_media"]) == (False, False)
        again = json.loads(CHANNEL.build_request(SECRETS, "C0001", payload, "outbox-1").body)
        assert again["client_msg_id"] == body["client_msg_id"]
        assert again["metadata"] == {"event_type": "threadline_delivery", "event_payload": {"id": "outbox-1"}}
        assert "thread_ts" not in again

    def test_the_repr_of_a_request_has_no_secret(self) -> None:
        request = CHANNEL.build_request(SECRETS, "D1", CHANNEL.render("hi")[0], "k")
        assert "xoxb" not in repr(request)
        assert "xoxb" not in f"{request}"

    @pytest.mark.parametrize("token", [None, "", "xoxb\r\nHost: evil", "xöxb", "a b"])
    def test_a_token_that_cannot_be_sent_is_a_settings_error(self, token: str | None) -> None:
        secrets = {} if token is None else {"bot_token": token}
        with pytest.raises(SettingsInvalid):
            CHANNEL.build_request(secrets, "D1", CHANNEL.render("hi")[0], "k")

    def test_a_reply_cannot_mention_people(self) -> None:
        (payload,) = CHANNEL.render(
            "<!channel> <@U1> &lt;!here&gt; `<!everyone>` [x](<https://a.example|<!here>>)\n\n    <!here>"
        )
        text = json.loads(payload)["text"]
        assert "<!" not in text
        assert "<@" not in text

    @pytest.mark.parametrize(
        ("status", "body", "outcome"),
        [
            (200, {"ok": True, "ts": "1.2"}, Sent("1.2")),
            (200, {"ok": False, "error": "channel_not_found"}, Permanent("channel_not_found")),
            (200, {"ok": False, "error": "ratelimited"}, Transient("ratelimited", 7)),
            (200, {"ok": False, "error": "fatal_error"}, Ambiguous("fatal_error")),
            (200, {"ok": False, "error": "duplicate_message_not_found"}, Sent()),
            (200, {"ok": False}, Permanent("unknown_error")),
            (200, "<html>", Ambiguous("the response could not be read")),
            (429, {"ok": False, "error": "ratelimited"}, Transient("ratelimited", 7)),
            (500, "<html>", Ambiguous("http_500")),
            (502, "<html>", Ambiguous("http_502")),
            (503, "<html>", Transient("http_503", 7, is_outage=True)),
            (408, "", Transient("http_408", 7, is_outage=True)),
            (404, "", Permanent("http_404")),
            (302, "", Permanent("http_302")),
        ],
    )
    def test_a_response_has_its_outcome(self, status: int, body: Any, outcome: object) -> None:
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        assert CHANNEL.parse_response(HttpResponse(status, {"retry-after": "7"}, raw)) == outcome

    @pytest.mark.parametrize("asked", ["", "soon", "-1", "1e9", "٣", "9" * 30])
    def test_an_invalid_retry_after_is_ignored(self, asked: str) -> None:
        assert CHANNEL.parse_response(HttpResponse(429, {"retry-after": asked}, b"")) == Transient("http_429", None)

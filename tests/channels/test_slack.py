"""Slack: who signed, what arrived, what is sent, what came of it."""

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
    def test_a_signature_of_the_last_five_minutes_is_taken(self, late: int) -> None:
        body = slack(slack_message())
        CHANNEL.verify(SECRETS, signed(body, str(int(NOW.timestamp()) + late)), body, NOW)

    @pytest.mark.req("S3-10", "S3-11")
    @pytest.mark.parametrize("late", [-301, 301])
    def test_a_stale_or_future_one_is_not(self, late: int) -> None:
        body = slack(slack_message())
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, signed(body, str(int(NOW.timestamp()) + late)), body, NOW)

    @pytest.mark.req("S3-10", "S3-11")
    @pytest.mark.parametrize(
        "stamp", ["abc", "", "1e30", "-5", f" {STAMP}", f"{STAMP} ", f"+{STAMP}", f"{STAMP}.0", "９" * 10, "1" * 400]
    )
    def test_a_timestamp_that_is_none_is_refused(self, stamp: str) -> None:
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, signed(b"{}", stamp), b"{}", NOW)

    @pytest.mark.req("S3-10", "S3-11")
    def test_a_body_written_anew_is_not_the_body_that_was_signed(self) -> None:
        body = slack(slack_message("naïve"))
        again = json.dumps(json.loads(body), ensure_ascii=False).encode()
        assert again != body
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, signed(body), again, NOW)

    @pytest.mark.req("S3-10")
    @pytest.mark.parametrize("wrong", ["", "v0=", "v0=" + "0" * 64, "v0=ünï", "\ud800", "v1=" + "0" * 64])
    def test_a_wrong_signature_is_refused_whatever_it_is_made_of(self, wrong: str) -> None:
        headers = [("X-Slack-Request-Timestamp", STAMP), ("X-Slack-Signature", wrong)]
        with pytest.raises(SignatureInvalid):
            CHANNEL.verify(SECRETS, headers, b"{}", NOW)

    @pytest.mark.req("S3-10")
    def test_a_missing_or_doubled_header_is_refused(self) -> None:
        right = signed(b"{}")
        for headers in ([], right[:1], right[1:], [*right, right[1]], [*right, ("x-slack-request-TIMESTAMP", STAMP)]):
            with pytest.raises(SignatureInvalid):
                CHANNEL.verify(SECRETS, headers, b"{}", NOW)

    @pytest.mark.req("S3-10")
    def test_another_tenants_secret_or_none_verifies_nothing(self) -> None:
        headers = signed(b"{}", secret="another tenant's")
        for secrets in (SECRETS, {}, {"signing_secret": ""}):
            with pytest.raises(SignatureInvalid):
                CHANNEL.verify(secrets, headers, b"{}", NOW)

    def test_header_names_may_be_in_any_case(self) -> None:
        CHANNEL.verify(SECRETS, [(name.upper(), value) for name, value in signed(b"{}")], b"{}", NOW)

    def test_nobody_asks_with_get(self) -> None:
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
    def test_a_text_that_comes_as_message_and_as_mention_has_one_key(self) -> None:
        said = slack_message(f"<@{BOT}> hello", channel="C0001", channel_type="channel")
        mention = {**said, "type": "app_mention"}
        del mention["channel_type"], mention["client_msg_id"]
        assert arrival(said) == arrival(mention)
        assert arrival(said).text == "hello"
        assert arrival(said).shared

    def test_in_a_channel_the_reply_goes_to_the_thread(self) -> None:
        said = slack_message(f"<@{BOT}> hello", channel="C0001", channel_type="channel")
        assert arrival(said).recipient == "C0001:1700000000.000100"
        inside = arrival({**said, "thread_ts": "1699999999.000001"})
        assert (inside.recipient, inside.place) == ("C0001:1699999999.000001", "C0001")
        assert inside.reply_to == "C0001:1699999999.000001"

    def test_what_is_said_to_others_in_a_channel_is_not_ours(self) -> None:
        assert ignored(slack_message("hello", channel="C0001", channel_type="channel")).reason == "unaddressed"

    def test_files_are_named_and_never_fetched(self) -> None:
        files = [{"name": "a\nb.pdf", "mimetype": "application/pdf", "url_private": "http://169.254.169.254/"}, {}]
        found = arrival(slack_message("look", subtype="file_share", files=files))
        assert found.text == "look\n[file: a b.pdf (application/pdf)]\n[file]"

    def test_references_are_read_as_words(self) -> None:
        text = "<@U2|bob> in <#C1|general>: <https://a.example|this>, <https://b.example>, <!here> &lt;b&gt; &amp;lt;"
        assert arrival(slack_message(text)).text == (
            "@bob in #general: this (https://a.example), https://b.example, @here <b> &lt;"
        )

    def test_a_mention_alone_says_nothing(self) -> None:
        assert ignored(slack_message(f"<@{BOT}> ")).reason == "empty"

    def test_without_an_authorization_the_first_mention_is_taken_for_the_bot(self) -> None:
        mention = slack_message("<@U9> hello", type="app_mention", channel="C0001")
        assert arrival(mention, bot=None).text == "hello"

    def test_half_a_character_and_a_nul_are_mended(self) -> None:
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
    def test_what_gets_no_turn_says_why(self, changes: dict[str, Any], reason: str) -> None:
        assert ignored(slack_message(**changes)).reason == reason

    def test_an_event_that_is_none_is_broken(self) -> None:
        events: list[Any] = [None, [], "message", {"type": 5}]
        for event in events:
            assert ignored(event).reason == "broken"

    @pytest.mark.req("S3-11")
    def test_the_challenge_is_read(self) -> None:
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
    def test_what_is_not_json_is_refused(self, body: bytes) -> None:
        with pytest.raises(InvalidJson):
            CHANNEL.parse_webhook(body)

    def test_what_is_nested_too_deeply_is_refused(self) -> None:
        with pytest.raises(LimitExceeded):
            CHANNEL.parse_webhook(b'{"type":' + b"[" * 10_000 + b"]" * 10_000 + b"}")

    def test_json_that_is_no_envelope_is_kept_from_being_sent_again(self) -> None:
        for body in (b"[]", b"null", b"{}", b'{"type":{}}', b'"text"'):
            assert CHANNEL.parse_webhook(body).ignored == (Ignored("broken", "envelope"),)


class TestSending:
    def test_a_request_says_where_and_with_which_key(self) -> None:
        (payload,) = CHANNEL.render("**hi**")
        request = CHANNEL.build_request(SECRETS, "C0001:1700000000.000100", payload, "outbox-1")
        assert (request.method, request.url, request.repeatable) == (
            "POST",
            "https://slack.com/api/chat.postMessage",
            True,
        )
        assert request.headers["authorization"] == "Bearer xoxb-1-2-three"
        body = json.loads(request.body)
        assert (body["channel"], body["thread_ts"], body["text"]) == ("C0001", "1700000000.000100", "*hi*")
        assert (body["unfurl_links"], body["unfurl_media"]) == (False, False)
        again = json.loads(CHANNEL.build_request(SECRETS, "C0001", payload, "outbox-1").body)
        assert again["client_msg_id"] == body["client_msg_id"]
        assert "thread_ts" not in again

    def test_a_request_does_not_show_its_secret(self) -> None:
        request = CHANNEL.build_request(SECRETS, "D1", CHANNEL.render("hi")[0], "k")
        assert "xoxb" not in repr(request)
        assert "xoxb" not in f"{request}"

    @pytest.mark.parametrize("token", [None, "", "xoxb\r\nHost: evil", "xöxb", "a b"])
    def test_a_token_that_cannot_be_sent_is_a_setting_to_mend(self, token: str | None) -> None:
        secrets = {} if token is None else {"bot_token": token}
        with pytest.raises(SettingsInvalid):
            CHANNEL.build_request(secrets, "D1", CHANNEL.render("hi")[0], "k")

    def test_nothing_an_agent_says_mentions_anybody(self) -> None:
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
            (503, "<html>", Transient("http_503", 7)),
            (408, "", Transient("http_408", 7)),
            (404, "", Permanent("http_404")),
            (302, "", Permanent("http_302")),
        ],
    )
    def test_an_answer_is_judged(self, status: int, body: Any, outcome: object) -> None:
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        assert CHANNEL.parse_response(HttpResponse(status, {"retry-after": "7"}, raw)) == outcome

    @pytest.mark.parametrize("asked", ["", "soon", "-1", "1e9", "٣", "9" * 30])
    def test_a_retry_after_that_is_none_is_left_out(self, asked: str) -> None:
        assert CHANNEL.parse_response(HttpResponse(429, {"retry-after": asked}, b"")) == Transient("http_429", None)

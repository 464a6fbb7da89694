"""The platforms' official clients as oracles: they accept what our fake platforms sign, send and reply.

Our codecs are then tested against those fakes.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import warnings
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient
from telegram import Bot, Update
from telegram.constants import MessageEntityType
from telegram.error import BadRequest, Conflict, Forbidden, InvalidToken, RetryAfter

from threadline.channels.slack import Slack
from threadline.channels.telegram import Telegram
from threadline.channels.whatsapp import WhatsApp
from threadline.core.platform_messages import (
    HttpRequest,
    HttpResponse,
    LookedUp,
    Permanent,
    Sent,
    Transient,
    WindowClosed,
)
from threadline.ports import Channel
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakePlatform, FakeSlack, FakeTelegram, FakeWhatsApp, Fault
from threadline.testing.platforms.loopback import ask
from threadline.testing.platforms.whatsapp import NUMBER_ID

with warnings.catch_warnings():
    # It calls itself deprecated in places that it imports on its own.
    warnings.simplefilter("ignore")
    import pywa.errors
    import pywa.utils
    from pywa.client import WhatsApp as PywaClient
    from pywa.types.message import Message as PywaMessage
    from pywa.types.message_status import MessageStatus, MessageStatusType
    from pywa.types.templates import TemplateLanguage

REPLY = "**Done** in `2 s` 😀: [notes](https://example.com) & <more>"


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as fake:
        yield fake


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as fake:
        yield fake


@pytest.fixture
async def whatsapp() -> AsyncIterator[FakeWhatsApp]:
    async with FakeWhatsApp() as fake:
        yield fake


async def perform(request: HttpRequest) -> HttpResponse:
    answer = await ask(request.method, request.url, request.headers, request.body)
    return HttpResponse(answer.status, answer.headers, answer.body)


class TestSlack:
    async def test_its_verifier_accepts_what_the_stand_in_signs(self, slack: FakeSlack) -> None:
        verifier = SignatureVerifier(slack.secrets["signing_secret"])
        body = slack.write("héllo")
        assert verifier.is_valid_request(body, slack.sign(body))
        assert not verifier.is_valid_request(body + b" ", slack.sign(body))
        Slack().verify(slack.secrets, list(slack.sign(body).items()), body, slack.clock.now())

    async def test_its_verifier_signs_what_we_accept(self) -> None:
        stamp, body = "1700000000", '{"text":"héllo"}'
        signature = SignatureVerifier("secret").generate_signature(timestamp=stamp, body=body)
        assert signature is not None
        headers = [("X-Slack-Request-Timestamp", stamp), ("X-Slack-Signature", signature)]
        Slack().verify(
            {"signing_secret": "secret"}, headers, body.encode(), dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
        )

    async def test_its_client_talks_to_the_stand_in(self, slack: FakeSlack) -> None:
        client = AsyncWebClient(token=slack.secrets["bot_token"], base_url=f"{slack.api}/")
        assert (await client.auth_test())["user_id"] == "U0THREADLN"
        posted = await client.chat_postMessage(channel="DU1001", text="hello")
        assert posted["ok"]
        assert posted["message"]["text"] == "hello"
        slack.fail_next(Fault("rate_limited", 7), Fault("refused"))
        with pytest.raises(SlackApiError) as limited:
            await client.chat_postMessage(channel="DU1001", text="hello")
        assert (limited.value.response.status_code, limited.value.response.headers["Retry-After"]) == (429, "7")
        with pytest.raises(SlackApiError, match="is_archived"):
            await client.chat_postMessage(channel="DU1001", text="hello")
        with pytest.raises(SlackApiError, match="invalid_auth"):
            await AsyncWebClient(token="xoxb-other", base_url=f"{slack.api}/").auth_test()

    @pytest.mark.req("H-01")
    async def test_its_client_sets_a_status_as_our_codec_does(self, slack: FakeSlack) -> None:
        (arrival,) = Slack().parse_webhook(slack.mention("hello")[1]).arrivals
        channel, _, thread_ts = arrival.recipient.partition(":")
        client = AsyncWebClient(token=slack.secrets["bot_token"], base_url=f"{slack.api}/")
        await client.assistant_threads_setStatus(channel_id=channel, thread_ts=thread_ts, status="is writing…")
        ours = Slack(slack.api).build_typing(slack.secrets, arrival)
        assert ours is not None
        assert (await perform(ours)).status == 200
        assert slack.signs[0] == slack.signs[1]


class TestTelegram:
    @pytest.mark.req("H-01")
    async def test_its_bot_shows_drafts_and_typing_as_our_codec_does(self, telegram: FakeTelegram) -> None:
        (arrival,) = Telegram().parse_webhook(telegram.write("hello")).arrivals
        codec = Telegram(telegram.api)
        async with Bot(telegram.secrets["bot_token"], base_url=f"{telegram.api}/bot") as bot:
            await bot.send_chat_action(1001, "typing")
            await bot.send_message_draft(1001, draft_id=1, text="Hello,")
        for request in (
            codec.build_typing(telegram.secrets, arrival),
            codec.build_draft(telegram.secrets, arrival, "Hello,"),
        ):
            assert (await perform(request)).status == 200
        assert telegram.signs[:2] == telegram.signs[2:]

    async def test_its_parser_reads_the_stand_ins_updates(self, telegram: FakeTelegram) -> None:
        body = telegram.write("/new plans")
        update = Update.de_json(json.loads(body), None)
        assert update.message is not None
        (arrival,) = Telegram().parse_webhook(body).arrivals
        assert arrival.key == f"{update.message.chat_id}:{update.message.message_id}"
        assert arrival.sent_at == update.message.date
        assert list(update.message.parse_entities([MessageEntityType.BOT_COMMAND]).values()) == ["/new"]

    async def test_its_bot_talks_to_the_stand_in(self, telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PTB_TIMEDELTA", "true")
        telegram.write("hello")
        async with Bot(telegram.secrets["bot_token"], base_url=f"{telegram.api}/bot") as bot:
            assert bot.username == "threadline_fake_bot"
            payload = json.loads(Telegram().render(REPLY)[0])
            message = await bot.send_message(1001, payload["text"], api_kwargs={"entities": payload["entities"]})
            assert message.text == "Done in 2 s 😀: notes & <more>"
            covered = message.parse_entities()
            assert sorted(covered.values()) == ["2 s", "Done", "notes"]
            telegram.fail_next(Fault("rate_limited", 7), Fault("refused"))
            with pytest.raises(RetryAfter) as limited:
                await bot.send_message(1001, "again")
            assert limited.value.retry_after == dt.timedelta(seconds=7)
            with pytest.raises(Forbidden):
                await bot.send_message(1001, "again")
            with pytest.raises(BadRequest, match="hat not found"):
                await bot.send_message(5, "unknown")

    async def test_its_bot_gets_updates_or_a_webhook(self, telegram: FakeTelegram) -> None:
        async with Bot(telegram.secrets["bot_token"], base_url=f"{telegram.api}/bot") as bot:
            await telegram.post("one")
            await telegram.post("two")
            first, second = await bot.get_updates(timeout=5)
            assert [update.message and update.message.text for update in (first, second)] == ["one", "two"]
            assert [update.update_id for update in await bot.get_updates(offset=second.update_id)] == [second.update_id]
            assert await bot.get_updates(offset=second.update_id + 1) == ()
            assert await bot.set_webhook("http://127.0.0.1:9/hook", secret_token="word")
            assert (await bot.get_webhook_info()).url == telegram.webhook == "http://127.0.0.1:9/hook"
            assert telegram.secrets["webhook_secret"] == "word"
            with pytest.raises(Conflict):
                await bot.get_updates()
            assert await bot.delete_webhook()
        with pytest.raises(InvalidToken):
            await Bot("123456:other", base_url=f"{telegram.api}/bot").initialize()

    async def test_our_polling_reads_the_stand_in(self, telegram: FakeTelegram) -> None:
        channel = Telegram(telegram.api)
        await telegram.post("one")
        polled = channel.parse_poll_response(await perform(channel.build_poll_request(telegram.secrets, 0, 5)))
        assert not isinstance(polled, Transient | Permanent)
        assert [arrival.text for delivery in polled.deliveries for arrival in delivery.arrivals] == ["one"]
        assert polled.last is not None
        nothing = channel.parse_poll_response(
            await perform(channel.build_poll_request(telegram.secrets, polled.last, 0))
        )
        assert not isinstance(nothing, Transient | Permanent)
        assert nothing.last is None


class RedirectToFake(httpx.BaseTransport):
    """pywa has one fixed address; this redirects it to the fake."""

    def __init__(self, url: str) -> None:
        self._url = httpx.URL(url)
        self._transport = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(scheme="http", host=self._url.host, port=self._url.port)
        return self._transport.handle_request(request)

    def close(self) -> None:
        self._transport.close()


class TestWhatsApp:
    def test_its_validator_accepts_what_the_stand_in_signs(self) -> None:
        fake = FakeWhatsApp()
        body = fake.write("héllo")
        header = fake.sign(body)["x-hub-signature-256"]
        secret = fake.secrets["app_secret"]
        assert pywa.utils.webhook_updates_validator(secret, body, header)
        assert not pywa.utils.webhook_updates_validator(secret, body + b" ", header)

    def test_its_parser_reads_the_stand_ins_webhooks(self) -> None:
        fake = FakeWhatsApp()
        client = PywaClient(phone_id=NUMBER_ID, token="t", server=None, validate_updates=False)
        body = fake.write("hello")
        message = PywaMessage.from_update(client, json.loads(body))
        (arrival,) = WhatsApp().parse_webhook(body).arrivals
        assert (message.id, message.text) == (arrival.key, arrival.text)
        assert message.from_user.wa_id == arrival.sender
        assert message.timestamp == arrival.sent_at
        status = MessageStatus.from_update(client, json.loads(fake.status("outbox-1", "delivered")))
        assert (status.status, status.tracker) == (MessageStatusType.DELIVERED, "outbox-1")

    async def test_its_client_talks_to_the_stand_in(self, whatsapp: FakeWhatsApp) -> None:
        def converse() -> str:
            session = httpx.Client(transport=RedirectToFake(whatsapp.api))
            client = PywaClient(
                phone_id=NUMBER_ID, token=whatsapp.secrets["access_token"], session=session, validate_updates=False
            )
            with session:
                sent = client.send_message(whatsapp.person, "hello")
                client.send_template(
                    whatsapp.person, "a_reply_waits", TemplateLanguage.ENGLISH_UK, [], tracker="outbox-1"
                )
                whatsapp.fail_next(Fault("rate_limited"), Fault("window_closed"), Fault("refused"))
                for error in (
                    pywa.errors.RateLimitHit,
                    pywa.errors.ReEngagementMessage,
                    pywa.errors.MessageUndeliverable,
                ):
                    with pytest.raises(error):
                        client.send_message(whatsapp.person, "again")
                with pytest.raises(pywa.errors.ReEngagementMessage):
                    client.send_message("4915550000", "unknown")
            return str(sent.id)

        whatsapp.write("hi")
        whatsapp.templates.add(("a_reply_waits", "en_GB"))
        assert (await asyncio.to_thread(converse)).startswith("wamid.")
        ours = json.loads(WhatsApp(template="a_reply_waits", template_language="en_GB").render_template() or "")
        sent = whatsapp.sent[1].payload
        assert sent["type"] == ours["type"]
        assert {**sent["template"], "components": []} == {**ours["template"], "components": []}


OUTCOMES: list[tuple[Fault, type]] = [
    (Fault("rate_limited", 7), Transient),
    (Fault("server_error"), Transient),
    (Fault("refused"), Permanent),
]


@pytest.mark.parametrize("fake", [FakeSlack, FakeTelegram, FakeWhatsApp])
async def test_requests_of_our_codec_arrive_and_their_responses_are_parsed(fake: type[FakePlatform]) -> None:
    async with fake() as platform:
        channel = channel_for(platform)
        (arrival,) = channel.parse_webhook(platform.write("hi")).arrivals
        (payload,) = channel.render(REPLY)
        request = channel.build_request(platform.secrets, arrival.recipient, payload, "outbox-1")
        assert isinstance(channel.parse_response(await perform(request)), Sent)
        (reply,) = await platform.replies(1)
        assert reply.recipient == arrival.recipient
        assert "Done" in reply.text
        for fault, kind in OUTCOMES:
            platform.fail_next(fault)
            outcome = channel.parse_response(await perform(request))
            assert isinstance(outcome, kind)
            if fault.kind == "rate_limited":
                assert getattr(outcome, "retry_after", None) == 7
        assert len(platform.sent) == 1


@pytest.mark.req("H-09")
@pytest.mark.parametrize("recipient", ["DU1001", "C0GENERAL"])
async def test_a_message_on_slack_is_found_by_its_key(slack: FakeSlack, recipient: str) -> None:
    channel, client = Slack(slack.api), AsyncWebClient(token=slack.secrets["bot_token"], base_url=f"{slack.api}/")
    since = slack.clock.now() - dt.timedelta(hours=1)
    if recipient == "C0GENERAL":
        (arrival,) = channel.parse_webhook(slack.mention("hello")[1]).arrivals
        recipient = arrival.recipient
    for number in range(3):
        await perform(channel.build_request(slack.secrets, recipient, channel.render("hi")[0], f"outbox-{number}"))

    async def find(key: str) -> LookedUp | Transient | Permanent:
        return channel.parse_search(await perform(channel.build_search(slack.secrets, recipient, since, None)), key)

    found = await find("outbox-1")
    assert isinstance(found, LookedUp)
    assert found.found is not None
    assert await find("outbox-9") == LookedUp()
    place, _, ts = recipient.partition(":")
    read = client.conversations_replies(channel=place, ts=ts) if ts else client.conversations_history(channel=place)
    assert not any("metadata" in message for message in (await read)["messages"]), "not unless it is asked for"


@pytest.mark.req("H-09")
async def test_slack_posts_a_repeated_message_twice_and_shows_pages_newest_first(slack: FakeSlack) -> None:
    channel = Slack(slack.api)
    request = channel.build_request(slack.secrets, "DU1001", channel.render("hi")[0], "outbox-1")
    for _ in range(3):
        await perform(request)
    assert len(slack.sent) == 3
    client = AsyncWebClient(token=slack.secrets["bot_token"], base_url=f"{slack.api}/")
    first = await client.conversations_history(channel="DU1001", limit=2, include_all_metadata=True)
    assert [message["metadata"]["event_payload"]["id"] for message in first["messages"]] == ["outbox-1"] * 2
    assert first["messages"][0]["ts"] > first["messages"][1]["ts"]
    cursor = first["response_metadata"]["next_cursor"]
    last = await client.conversations_history(channel="DU1001", cursor=cursor)
    assert len(last["messages"]) == 1


@pytest.mark.req("H-09")
async def test_without_the_scope_slack_does_not_say_what_was_sent() -> None:
    async with FakeSlack(scopes=frozenset(("chat:write",))) as slack:
        channel = Slack(slack.api)
        request = channel.build_search(slack.secrets, "DU1001", slack.clock.now(), None)
        assert channel.parse_search(await perform(request), "outbox-1") == Permanent("missing_scope")


async def test_slack_limits_messages_in_a_channel(slack: FakeSlack) -> None:
    channel = Slack(slack.api)
    request = channel.build_request(slack.secrets, "DU1001", channel.render("hi")[0], "outbox-1")
    outcomes = [channel.parse_response(await perform(request)) for _ in range(80)]
    limited = next(outcome for outcome in outcomes if isinstance(outcome, Transient))
    assert (limited.retry_after, limited.is_outage) == (1, False)
    elsewhere = channel.build_request(slack.secrets, "DU1002", channel.render("hi")[0], "outbox-1")
    assert isinstance(channel.parse_response(await perform(elsewhere)), Sent)


async def test_the_window_closes_24_hours_after_the_last_message() -> None:
    clock = ManualClock()
    async with FakeWhatsApp(clock) as whatsapp:
        channel = WhatsApp(whatsapp.api)
        (arrival,) = channel.parse_webhook(whatsapp.write("hi")).arrivals
        request = channel.build_request(whatsapp.secrets, arrival.recipient, channel.render("late")[0], "outbox-1")
        clock.advance(86_399)
        assert isinstance(channel.parse_response(await perform(request)), Sent)
        clock.advance(1)
        assert isinstance(channel.parse_response(await perform(request)), WindowClosed)


def channel_for(platform: FakePlatform) -> Channel:
    channels: dict[str, Any] = {"slack": Slack, "telegram": Telegram, "whatsapp": WhatsApp}
    channel: Channel = channels[platform.platform](platform.api)
    return channel

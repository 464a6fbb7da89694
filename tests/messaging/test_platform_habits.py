"""What platforms do beside delivering messages: handshakes, retries, two events for one text, late reports."""

from __future__ import annotations

import asyncio

import pytest

from tests.messaging.conftest import Stage, decisions
from threadline.core.channels import OutboxRow
from threadline.testing.platforms import Fault
from threadline.testing.platforms.slack import BOT_USER


async def settled(stage: Stage, status: str) -> OutboxRow:
    """The one delivery, once its worker has written down what came of it."""
    async with asyncio.timeout(30):
        while True:
            (row,) = await stage.outbox()
            if row.status == status:
                return row
            await asyncio.sleep(0.01)


@pytest.mark.req("S3-11")
async def test_slacks_question_is_answered_when_it_is_signed_and_not_otherwise(small_stage: Stage) -> None:
    slack = small_stage.slack
    answered = await slack.shake_hands()
    assert (answered.status, answered.body.decode()) == (200, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
    unsigned = await slack.deliver(b'{"type":"url_verification","challenge":"stolen"}', {})
    assert unsigned.status == 401
    assert b"stolen" not in unsigned.body


@pytest.mark.req("S3-12")
async def test_metas_question_is_answered_to_who_knows_the_word(small_stage: Stage) -> None:
    answered = await small_stage.whatsapp.shake_hands()
    assert (answered.status, answered.body) == (200, b"1158201444")
    other = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": "guessed"}
    assert (await small_stage.http.get(small_stage.whatsapp.webhook or "", params=other)).status_code == 401


@pytest.mark.req("S3-11")
async def test_a_retry_of_an_event_that_was_never_seen_is_answered(small_stage: Stage) -> None:
    slack = small_stage.slack
    await small_stage.link(slack)
    body = slack.write("hello")
    retry = {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}
    assert decisions(await slack.deliver(body, {**slack.sign(body), **retry})) == ["accepted"]
    assert decisions(await slack.deliver(body, {**slack.sign(body), **retry})) == ["duplicate"]
    await slack.replies(1)
    assert len(await small_stage.turns()) == 1


@pytest.mark.req("S3-17", "S3-18")
async def test_a_mention_that_comes_as_two_events_is_answered_once_in_its_thread(small_stage: Stage) -> None:
    slack = small_stage.slack
    await small_stage.link(slack)
    message, mention = slack.mention("hello")
    decided = decisions(await slack.deliver(mention)) + decisions(await slack.deliver(message))
    assert decided == ["accepted", "duplicate"]
    (reply,) = await slack.replies(1)
    channel, _, thread_ts = reply.recipient.partition(":")
    assert channel == "C0GENERAL"
    assert thread_ts
    assert small_stage.agent.prompt_texts() == [("user", "hello")]


@pytest.mark.req("S3-11")
async def test_what_the_bot_says_itself_starts_nothing(small_stage: Stage) -> None:
    slack = small_stage.slack
    await small_stage.link(slack, sender=BOT_USER)
    assert decisions(await slack.say("an echo", BOT_USER)) == []
    assert await small_stage.outbox() == []


@pytest.mark.req("S3-12", "S3-22")
async def test_a_reply_that_whatsapp_took_and_could_not_deliver_is_shown_as_that(stage: Stage) -> None:
    whatsapp = stage.whatsapp
    await stage.link(whatsapp)
    await stage.say(whatsapp, "hello")
    row = await settled(stage, "sent")
    closed = [{"code": 131047, "title": "Re-engagement message"}]
    report = whatsapp.status(row.id, "failed", errors=closed)
    assert [told.status for told in await whatsapp.deliver_often(report, 2)] == [200, 200]
    (row,) = await stage.outbox()
    assert (row.status, row.last_error) == ("window_closed", "131047 Re-engagement message")
    assert len(await stage.turns()) == 1


@pytest.mark.req("S3-22")
async def test_a_send_with_an_unclear_end_is_settled_by_whatsapps_receipt(stage: Stage) -> None:
    whatsapp = stage.whatsapp
    await stage.link(whatsapp)
    whatsapp.fail_next(Fault("silent"))
    await stage.say(whatsapp, "hello")
    row = await settled(stage, "waiting")
    assert (await whatsapp.deliver(whatsapp.status(row.id, "delivered"))).status == 200
    (row,) = await stage.outbox()
    assert (row.status, row.sent_at) == ("sent", stage.clock.now())
    stage.clock.advance(600)
    assert await stage.threadline.messaging.outbox_worker.deliver(stage.tenant_id) == 0
    assert (len(whatsapp.sent), whatsapp.calls) == (1, 1)

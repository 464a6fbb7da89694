"""Replies on Slack are shown while they are written, and end as one message with the stored text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.conftest import open_database
from tests.messaging.conftest import Stage, staging
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakeSlack, Fault
from threadline.testing.platforms.slack import direct

DIRECT = direct(FakeSlack.person)


@pytest.fixture
async def live(tenant_id: str, clock: ManualClock) -> AsyncIterator[Stage]:
    """Its agent says "Hello, " and waits for the gate before it says "you."; direct replies are in threads."""
    store = await open_database(":memory:", clock=clock)
    settings = {"slack": {"direct_replies": "thread"}}
    async with staging(store, tenant_id, clock, live_after_seconds=0.01, platform_settings=settings) as stage:
        stage.agent.gate = asyncio.Event()
        await stage.link(stage.slack)
        yield stage
    await store.close()


async def shown(stage: Stage, text: str) -> None:
    """Until a stream shows this text."""
    await stage.slack.until(lambda: any(sign.text == text for sign in stage.slack.signs))


def finish(stage: Stage) -> None:
    assert stage.agent.gate is not None
    stage.agent.gate.set()


@pytest.mark.req("H-01")
async def test_a_reply_grows_in_the_thread_of_its_question_and_becomes_one_message(live: Stage) -> None:
    body = live.slack.write("hello")
    await live.slack.deliver(body)
    await shown(live, "Hello,")
    assert live.slack.messages_of_bot(DIRECT) == ["Hello,"]
    finish(live)
    (reply,) = await live.slack.replies(1)
    assert reply.recipient == f"{DIRECT}:{json.loads(body)['event']['ts']}"
    assert live.slack.messages_of_bot(DIRECT) == ["Hello, you."]
    # The delivery's id is in the metadata, so that a crash after this is noticed.
    assert reply.payload["metadata"]["event_payload"]["id"] == (await live.outbox())[0].id


@pytest.mark.req("H-01")
async def test_a_stream_that_slack_has_ended_becomes_the_reply_nevertheless(live: Stage) -> None:
    await live.slack.say("hello")
    await shown(live, "Hello,")
    live.slack.end_streams()
    finish(live)
    assert [reply.text for reply in await live.slack.replies(1)] == ["Hello, you."]
    assert live.slack.messages_of_bot(DIRECT) == ["Hello, you."]


@pytest.mark.req("H-01")
async def test_a_long_reply_replaces_the_stream_and_continues_below_it(live: Stage) -> None:
    await live.slack.say("hello")
    await shown(live, "Hello,")
    live.agent.lines = ["Word. " * 1000]
    finish(live)
    replies = await live.slack.replies(1)
    first = live.slack.messages_of_bot(DIRECT)[0]
    assert replies[0].text == first
    live.agent.lines = ["Word. " * 1500]
    await live.slack.say("more")
    texts = [reply.text for reply in await live.slack.replies(4)]
    assert "".join(texts[1:]).count("Word.") == 1500
    assert live.slack.messages_of_bot(DIRECT) == texts


@pytest.mark.req("H-01")
async def test_where_streams_are_refused_there_is_a_status_and_a_message(live: Stage) -> None:
    live.slack.has_drafts = False
    await live.slack.say("hello")
    await live.slack.until(lambda: len(live.slack.signs) >= 1)
    finish(live)
    assert [reply.text for reply in await live.slack.replies(1)] == ["Hello, you."]
    assert {sign.text for sign in live.slack.signs} == {""}


@pytest.mark.req("H-01")
async def test_a_reply_that_slack_limits_is_finished_later_in_the_same_message(live: Stage) -> None:
    await live.slack.say("hello")
    await shown(live, "Hello,")
    live.slack.fail_next(Fault("rate_limited"), Fault("server_error"))
    finish(live)
    async with asyncio.timeout(60):
        while not live.slack.sent:
            live.clock.advance(10)
            await asyncio.sleep(0.02)
    assert live.slack.messages_of_bot(DIRECT) == ["Hello, you."]


@pytest.mark.req("H-01")
async def test_in_channels_a_status_shows_that_the_reply_is_written(live: Stage) -> None:
    await live.slack.deliver(live.slack.mention("hello")[1])
    await live.slack.until(lambda: len(live.slack.signs) >= 1)
    finish(live)
    await live.slack.replies(1)
    assert {sign.text for sign in live.slack.signs} == {""}


@pytest.mark.req("H-01")
async def test_what_is_shown_contains_no_mention(live: Stage) -> None:
    codec: Any = live.slack_codec
    assert codec.stream_text("<!channel> and <@U1> & 1 < 2") == "< !channel> and < @U1> & 1 < 2"


@pytest.mark.req("H-01")
async def test_slacks_own_client_streams_to_the_stand_in() -> None:
    async with FakeSlack() as slack:
        client = AsyncWebClient(token=slack.secrets["bot_token"], base_url=f"{slack.api}/")
        opened = await client.chat_startStream(channel=DIRECT, thread_ts="1700000000.000100", markdown_text="Hello, ")
        named = {"channel": DIRECT, "ts": opened["ts"]}
        await client.chat_appendStream(**named, markdown_text="you")
        with pytest.raises(SlackApiError, match="streaming_state_conflict"):
            await client.chat_update(**named, text="too early")
        await client.chat_stopStream(**named, markdown_text=".")
        assert slack.messages_of_bot(DIRECT) == ["Hello, you."]
        with pytest.raises(SlackApiError, match="message_not_in_streaming_state"):
            await client.chat_appendStream(**named, markdown_text="more")
        with pytest.raises(SlackApiError, match="missing_recipient"):
            await client.chat_startStream(channel="C1", thread_ts="1700000000.000100", markdown_text="Hello")
        await client.chat_update(**named, text="Done", metadata={"event_type": "x", "event_payload": {"id": "1"}})
        assert slack.messages_of_bot(DIRECT) == ["Done"]

"""What people see on their platform while a reply is written, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.conftest import open_database
from tests.messaging.conftest import Stage, staging
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakePlatform


@pytest.fixture
async def live(tenant_id: str, clock: ManualClock) -> AsyncIterator[Stage]:
    """Its agent says "Hello, " and waits for the gate before it says "you."."""
    store = await open_database(":memory:", clock=clock)
    async with staging(store, tenant_id, clock, live_after_seconds=0.01) as stage:
        stage.agent.gate = asyncio.Event()
        yield stage
    await store.close()


async def finish(stage: Stage, fake: FakePlatform) -> None:
    assert stage.agent.gate is not None
    stage.agent.gate.set()
    (reply,) = await fake.replies(1)
    assert reply.text == "Hello, you."
    assert fake.edits == []


@pytest.mark.req("H-01")
async def test_telegram_shows_a_draft_of_the_reply_and_then_the_reply(live: Stage) -> None:
    telegram = live.telegram
    await live.link(telegram)
    await telegram.say("hello")
    await telegram.until(lambda: any(sign.text == "Hello," for sign in telegram.signs))
    assert {sign.where for sign in telegram.signs} == {telegram.person}
    await finish(live, telegram)


@pytest.mark.req("H-01")
async def test_where_drafts_are_refused_telegram_shows_that_the_agent_writes(live: Stage) -> None:
    telegram = live.telegram
    telegram.has_drafts = False
    await live.link(telegram)
    await telegram.say("hello")
    await telegram.until(lambda: len(telegram.signs) >= 1)
    assert {sign.text for sign in telegram.signs} == {""}
    await finish(live, telegram)


@pytest.mark.req("H-01")
async def test_slack_shows_a_status_in_the_thread(live: Stage) -> None:
    await live.link(live.slack)
    mention = live.slack.mention("hello")[1]
    await live.slack.deliver(mention)
    await live.slack.until(lambda: len(live.slack.signs) >= 1)
    assert live.slack.signs[0].where == f"C0GENERAL:{json.loads(mention)['event']['ts']}"
    await finish(live, live.slack)


@pytest.mark.req("H-01")
async def test_whatsapp_marks_the_message_as_read_and_shows_that_the_agent_writes(live: Stage) -> None:
    await live.link(live.whatsapp)
    message = live.whatsapp.message("hello")
    await live.whatsapp.deliver(live.whatsapp.batch(message))
    await live.whatsapp.until(lambda: len(live.whatsapp.signs) >= 1)
    assert live.whatsapp.signs[0].where == message["id"]
    await finish(live, live.whatsapp)


@pytest.mark.req("H-01")
async def test_a_platform_that_shows_nothing_delays_no_reply(live: Stage) -> None:
    """A direct message on Slack has no thread, so there is nowhere to show it."""
    await live.link(live.slack)
    await live.slack.say("hello")
    async with asyncio.timeout(60):
        await live.agent.waiting.wait()
    await finish(live, live.slack)
    assert live.slack.signs == []

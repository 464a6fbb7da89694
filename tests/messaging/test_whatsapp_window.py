"""WhatsApp's window: a reply that it refuses is kept, and sent when the person writes again."""

from __future__ import annotations

import asyncio

import pytest

from tests.messaging.conftest import Stage
from threadline.testing.platforms import Fault


@pytest.mark.req("S3-22", "H-05")
async def test_a_reply_that_a_closed_window_refused_is_sent_when_the_person_writes_again(stage: Stage) -> None:
    whatsapp = stage.whatsapp
    await stage.link(whatsapp)
    await stage.link(whatsapp, "bob", "16505550000")
    whatsapp.fail_next(Fault("window_closed"), Fault("window_closed"))
    stage.agent.lines = ["The answer to your first question"]
    await whatsapp.say("First?")
    await settled_as(stage, "window_closed", 1)
    await whatsapp.say("Hello from bob", "16505550000")
    await settled_as(stage, "window_closed", 2)
    stage.clock.advance(100_000)
    assert whatsapp.sent == []
    stage.agent.lines = ["The answer to your second question"]
    await whatsapp.say("Second?")
    shown = [reply.text for reply in await whatsapp.replies(2)]
    assert shown == ["The answer to your first question", "The answer to your second question"]
    assert [row.owner_id for row in await stage.outbox() if row.status == "window_closed"] == ["bob"]


@pytest.mark.req("H-05")
async def test_a_refused_reply_is_not_sent_to_the_next_user_of_the_account(small_stage: Stage) -> None:
    await small_stage.link(small_stage.whatsapp, "alice")
    small_stage.whatsapp.fail_next(Fault("window_closed"))
    await small_stage.whatsapp.say("Mine")
    await settled_as(small_stage, "window_closed", 1)
    await small_stage.link(small_stage.whatsapp, "bob")
    assert await small_stage.say(small_stage.whatsapp, "Anything for me?") == "Hello, you."
    assert [row.owner_id for row in await small_stage.outbox() if row.status == "window_closed"] == ["alice"]


async def settled_as(stage: Stage, status: str, count: int) -> None:
    """Until so many rows have this status."""
    async with asyncio.timeout(30):
        # The worker of the service does it.
        while len([row for row in await stage.outbox() if row.status == status]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

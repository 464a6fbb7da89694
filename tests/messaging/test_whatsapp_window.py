"""WhatsApp's window: a reply that it refuses is kept, and sent when the person writes again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.conftest import open_database
from tests.messaging.conftest import Stage, staging
from threadline.channels.whatsapp import WhatsApp
from threadline.core.channels import OutboxRow
from threadline.core.errors import SettingsInvalid
from threadline.testing.clock import ManualClock
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


@pytest.fixture
async def with_template(tenant_id: str, clock: ManualClock) -> AsyncIterator[Stage]:
    store = await open_database(":memory:", clock=clock)
    settings = {"template": "a_reply_waits", "template_language": "en_GB"}
    async with staging(store, tenant_id, clock, platform_settings={"whatsapp": settings}) as staged:
        staged.whatsapp.templates.add(("a_reply_waits", "en_GB"))
        await staged.link(staged.whatsapp)
        yield staged
    await store.close()


@pytest.mark.req("H-05")
async def test_a_template_asks_the_person_to_write_once_and_then_the_replies_come(with_template: Stage) -> None:
    stage, whatsapp = with_template, with_template.whatsapp
    whatsapp.fail_next(Fault("window_closed"), Fault("window_closed"))
    stage.agent.lines = ["Late. " * 1000]
    await whatsapp.say("First?")
    (asked,) = await whatsapp.replies(1)
    assert asked.text == "[a_reply_waits]"
    assert asked.payload["template"] == {"name": "a_reply_waits", "language": {"code": "en_GB"}}
    whatsapp.sent.clear()
    stage.agent.lines = ["Present."]
    await whatsapp.say("Now?")
    texts = [reply.text for reply in await whatsapp.replies(3)]
    assert [text.strip()[:5] for text in texts] == ["Late.", "Late.", "Prese"]


@pytest.mark.req("H-05")
async def test_a_refusal_that_is_reported_later_sends_the_template_too_and_once_however_often_it_is_reported(
    with_template: Stage,
) -> None:
    stage, whatsapp = with_template, with_template.whatsapp
    await stage.say(whatsapp, "hello")
    await until(stage, lambda rows: [row.status for row in rows] == ["sent"])
    (row,) = await stage.outbox()
    report = whatsapp.status(row.id, "failed", errors=[{"code": 131047, "title": "Re-engagement message"}])
    await whatsapp.deliver_often(report, 3)
    assert (await whatsapp.replies(2))[1].text == "[a_reply_waits]"
    stage.clock.advance(3 * 86_400)
    await whatsapp.deliver_often(report, 3)
    await until(stage, lambda rows: sorted(row.status for row in rows) == ["sent", "window_closed"])
    assert len(whatsapp.sent) == 2


@pytest.mark.req("H-05")
async def test_a_template_that_whatsapp_does_not_know_is_a_dead_letter_and_the_reply_is_kept(
    with_template: Stage,
) -> None:
    stage, whatsapp = with_template, with_template.whatsapp
    whatsapp.templates.clear()
    whatsapp.fail_next(Fault("window_closed"))
    await whatsapp.say("First?")
    await until(stage, lambda rows: sorted(row.status for row in rows) == ["dead", "window_closed"])
    (dead,) = [row for row in await stage.outbox() if row.status == "dead"]
    assert "132001" in (dead.last_error or "")


@pytest.mark.req("H-05")
def test_a_template_name_that_cannot_exist_is_refused_with_the_rule() -> None:
    with pytest.raises(SettingsInvalid, match="template must be lower-case letters, digits and _"):
        WhatsApp(template="A reply waits")


async def until(stage: Stage, holds: Callable[[list[OutboxRow]], bool]) -> None:
    async with asyncio.timeout(60):
        # The worker of the service settles the rows.
        while not holds(await stage.outbox()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def settled_as(stage: Stage, status: str, count: int) -> None:
    """Until so many rows have this status."""
    async with asyncio.timeout(30):
        # The worker of the service does it.
        while len([row for row in await stage.outbox() if row.status == status]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

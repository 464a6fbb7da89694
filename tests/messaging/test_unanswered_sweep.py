"""Messages whose turn ended without an answer, and asking Telegram for what arrived instead of being told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.messaging.conftest import Stage, decisions
from tests.service.conftest import held
from threadline.core.errors import NotFound, SettingsInvalid
from threadline.core.platform_messages import Transient
from threadline.core.threads import Scope
from threadline.messaging.polling import Polling


@asynccontextmanager
async def one_running_one_waiting(stage: Stage) -> AsyncIterator[str]:
    """The id of the turn that waits."""
    await stage.link(stage.slack)
    async with held(stage.agent):
        await stage.slack.say("First")
        async with asyncio.timeout(30):
            await stage.agent.waiting.wait()
        assert decisions(await stage.slack.say("Second")) == ["accepted"]
        yield (await stage.turns())[0].id


@pytest.mark.req("S3-23")
async def test_a_turn_stopped_before_it_ran_is_answered_all_the_same(stage: Stage) -> None:
    async with one_running_one_waiting(stage) as waiting:
        assert await stage.threadline.runner.stop(Scope(stage.tenant_id, "alice"), waiting)
        assert await stage.threadline.messaging.unanswered_sweep.catch_up(stage.tenant_id) == 1
        assert await stage.threadline.messaging.unanswered_sweep.catch_up(stage.tenant_id) == 0
    stage.threadline.messaging.outbox_worker.wake(stage.tenant_id)
    shown = [reply.text for reply in await stage.slack.replies(2)]
    assert sorted(shown) == ["Hello, you.", "The reply was stopped."]


@pytest.mark.req("S3-07", "S3-23")
async def test_the_inbox_says_what_became_of_each_message(stage: Stage) -> None:
    await stage.link(stage.slack)
    await stage.say(stage.slack, "Good morning")
    (turn,) = await stage.turns()
    assert turn.idempotency_key is not None
    row = await stage.system.inbox_row("slack", turn.idempotency_key.removeprefix("slack:"))
    assert row is not None
    assert (row.status, row.decision, row.turn_id, row.owner_id) == ("done", "executed", turn.id, "alice")
    assert row.correlation_id
    assert await stage.system.unanswered() == []


async def test_what_was_purged_is_not_looked_for_forever(small_stage: Stage) -> None:
    await small_stage.link(small_stage.slack)
    await small_stage.say(small_stage.slack, "Good morning")
    await small_stage.system.claim_inbox("slack", "lost", reply_to="DU1001", owner_id="alice")
    await small_stage.system.settle_inbox("slack", "lost", status="accepted", turn_id="purged")
    await small_stage.threadline.messaging.unanswered_sweep.catch_up(small_stage.tenant_id)
    assert await small_stage.system.unanswered() == []
    assert len(await small_stage.outbox()) == 1


class TestPolling:
    def polling(self, stage: Stage) -> Polling:
        stage.telegram.webhook = None
        return stage.threadline.messaging.open_polling(stage.threadline.inbox, "telegram")

    async def test_what_arrived_is_answered_and_confirmed_only_when_stored(self, stage: Stage) -> None:
        await stage.link(stage.telegram)
        polling = self.polling(stage)
        await stage.telegram.post("First")
        await stage.telegram.post("Second")
        after = await polling.poll(stage.tenant_id, 0, held_seconds=0)
        assert isinstance(after, int)
        assert len(stage.telegram.waiting) == 2, "they are confirmed by the next question"
        again = await polling.poll(stage.tenant_id, 0, held_seconds=0)
        assert again == after, "whoever was killed asks for the same again"
        assert await polling.poll(stage.tenant_id, after, held_seconds=0) == after
        assert stage.telegram.waiting == []
        await stage.telegram.replies(2)
        assert sorted(await stage.history()) == ["First", "Hello, you.", "Hello, you.", "Second"]
        assert len(await stage.outbox()) == 2

    async def test_a_passing_fault_is_waited_out_and_a_lasting_one_is_told(self, small_stage: Stage) -> None:
        polling = self.polling(small_stage)
        small_stage.telegram.webhook = "https://example.org/hook"
        busy = await polling.poll(small_stage.tenant_id, 0, held_seconds=0)
        assert isinstance(busy, Transient)
        assert "webhook" in busy.reason
        small_stage.telegram.webhook = None
        scope = Scope(small_stage.tenant_id, "root", "admin")
        await small_stage.threadline.messaging.credentials.delete(scope, "telegram")
        with pytest.raises(NotFound):
            await polling.poll(small_stage.tenant_id, 0, held_seconds=0)
        wrong = {**small_stage.telegram.secrets, "bot_token": "123456:another"}
        await small_stage.threadline.messaging.credentials.put(scope, "telegram", wrong)
        with pytest.raises(SettingsInvalid, match="refused"):
            await polling.poll(small_stage.tenant_id, 0, held_seconds=0)

    async def test_only_telegram_can_be_asked(self, small_stage: Stage) -> None:
        for platform in ("slack", "whatsapp", "fax"):
            with pytest.raises(NotFound):
                small_stage.threadline.messaging.open_polling(small_stage.threadline.inbox, platform)

    async def test_polling_resumes_where_it_stopped(self, small_stage: Stage) -> None:
        await small_stage.link(small_stage.telegram)
        running = asyncio.create_task(self.polling(small_stage).run(small_stage.tenant_id))
        for number in range(3):
            await small_stage.telegram.post(f"Message {number}")
            await small_stage.telegram.replies(number + 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(small_stage.telegram.sent) == 3

"""A process that cannot keep up with its messages refuses new ones: the platforms send them again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.conftest import open_database
from tests.messaging.conftest import Stage, staging
from threadline.testing.clock import ManualClock
from threadline.turns import leases
from threadline.turns.channel_lane import ChannelLane

WAIT_SECONDS = 60.0
pytestmark = pytest.mark.req("R-04")


async def test_the_lane_tells_how_long_the_oldest_waits() -> None:
    lane = ChannelLane(1)
    assert lane.wait_seconds == 0.0
    order: list[int] = []

    async def step(number: int) -> None:
        async with lane.step():
            order.append(number)

    async with lane.step():
        assert lane.wait_seconds == 0.0
        waiting = [asyncio.create_task(step(number)) for number in range(3)]
        while lane.wait_seconds == 0.0:  # noqa: ASYNC110 - time passes by itself
            await asyncio.sleep(0.001)
        waiting[0].cancel()
        first = lane.wait_seconds
        await asyncio.sleep(0)
        assert lane.wait_seconds > 0.0
        assert first >= 0.0
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == [1, 2]
    assert lane.wait_seconds == 0.0


async def test_while_messages_wait_too_long_others_are_refused_and_none_is_lost(
    tenant_id: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes: list[ChannelLane] = []

    def keep_lane(width: int) -> ChannelLane:
        lanes.append(ChannelLane(width))
        return lanes[-1]

    monkeypatch.setattr(leases, "ChannelLane", keep_lane)
    store = await open_database(":memory:", clock=clock)
    async with staging(store, tenant_id, clock, channels={"shed_seconds": 0.05}) as stage:
        await stage.link(stage.slack)
        (lane,) = lanes
        async with asyncio.timeout(WAIT_SECONDS):
            async with AsyncExitStack() as busy:
                for _ in range(leases.CHANNEL_STEPS):
                    await busy.enter_async_context(lane.step())
                assert (await stage.slack.say("Good morning")).status == 200
                while lane.wait_seconds <= 0.05:  # noqa: ASYNC110 - time passes by itself
                    await asyncio.sleep(0.01)
                late = stage.slack.write("Are you there?")
                refused = await stage.slack.deliver(late)
                assert refused.status == 503
                assert b"overloaded" in refused.body
                assert int(await _retry_after(stage)) > 0
            # The lane is free again: the first is answered, and the platform's repeat is accepted once.
            await stage.slack.replies(1)
            assert (await stage.slack.deliver(late)).status == 200
            await stage.slack.replies(2)
        assert await stage.history() == ["Good morning", "Hello, you.", "Are you there?", "Hello, you."]
    await store.close()


async def _retry_after(stage: Stage) -> str:
    response = await stage.http.post(stage.slack.webhook or "", json={})
    assert response.status_code == 503
    return response.headers["retry-after"]

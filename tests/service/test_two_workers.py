"""Two workers on one database: a stream started on one is resumed and stopped on the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conftest import OpenStore
from tests.scripted_agent import ScriptedAgent, make_threadline
from tests.service.conftest import SERVICE, held
from tests.service.running_service import CHAT, Client, serving, streamed_text
from threadline.settings import Settings
from threadline.testing.clock import ManualClock

pytestmark = pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)


@pytest.fixture
async def workers(
    open_store: OpenStore, clock: ManualClock, scripted_agent: ScriptedAgent, tenant_id: str
) -> AsyncIterator[tuple[Client, Client]]:
    settings = Settings(tenant=tenant_id, agent="scripted", service=SERVICE)
    one = make_threadline(await open_store(), settings, clock, scripted_agent)
    other = make_threadline(await open_store(), settings, clock, scripted_agent)
    async with serving(one) as first, serving(other) as second:
        yield first, second


@pytest.mark.req("S1-26")
async def test_a_stream_started_on_one_worker_is_resumed_on_the_other(
    workers: tuple[Client, Client], scripted_agent: ScriptedAgent
) -> None:
    one, other = workers
    async with held(scripted_agent) as gate:
        asking = asyncio.create_task(one.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        refused = await other.post_chat("And now?", "key")
        assert (refused.status_code, refused.json()["code"]) == (409, "turn_running")
        resumed = await other.resume("key", gate.set)
        whole = one.chunks(await asking)
        assert resumed == whole
    assert streamed_text(whole) == "Hello, you."


@pytest.mark.req("S1-28")
async def test_a_turn_running_on_one_worker_is_stopped_on_the_other(
    workers: tuple[Client, Client], scripted_agent: ScriptedAgent
) -> None:
    one, other = workers
    async with held(scripted_agent):
        asking = asyncio.create_task(one.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        assert (await other.http.post(f"{CHAT}/key/stop")).json() == {"ok": True, "stopped": 1}
        assert one.chunks(await asking)[-1] == {"type": "abort"}
    assert await other.messages("key") == [("user", "Hi"), ("assistant", "Hello, ")]

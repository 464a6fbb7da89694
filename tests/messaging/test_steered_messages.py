"""A message that arrives from a platform while a reply is written: taken into it if the settings say so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conftest import open_database, postgres_database
from tests.messaging.conftest import Stage, staging
from tests.turns.steered_process import LATE, QUESTION, Describer
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakePlatform

pytestmark = pytest.mark.req("A-06")
_LIMIT = 60


class Room:
    """A stage on which the agent's tool waits for `gate`."""

    def __init__(self, stage: Stage, describer: Describer, gate: asyncio.Event) -> None:
        self.stage, self.describer, self.gate = stage, describer, gate

    async def begin(self, fake: FakePlatform) -> None:
        await self.stage.link(fake)
        assert (await fake.say(QUESTION)).status == 200
        await asyncio.wait_for(self.describer.looking.wait(), _LIMIT)


@pytest.fixture(params=["memory", "postgres"])
async def room(request: pytest.FixtureRequest, tenant_id: str, clock: ManualClock) -> AsyncIterator[Room]:
    database = ":memory:" if request.param == "memory" else await postgres_database()
    store = await open_database(database, clock=clock)
    gate = asyncio.Event()
    describer = Describer(tool_gate=gate)
    changes: dict[str, Any] = {"agent": "studio", "own_agents": {"studio": describer.agent()}}
    async with staging(store, tenant_id, clock, channels={"policy": "steer"}, **changes) as staged:
        yield Room(staged, describer, gate)
    await store.close()


@pytest.mark.parametrize("name", ["slack", "telegram", "whatsapp"])
async def test_one_reply_answers_both_messages_of_a_chat(room: Room, name: str) -> None:
    stage = room.stage
    fake: FakePlatform = getattr(stage, name)
    await room.begin(fake)
    assert (await fake.say(LATE)).status == 200
    room.gate.set()
    (reply,) = await fake.replies(1)
    assert reply.text == f"Told: {LATE}"
    late, asked = await stage.turns()
    assert (late.status, late.taken_by, asked.status) == ("executed", asked.id, "executed")
    assert await stage.history() == [QUESTION, LATE, f"Told: {LATE}"]
    # Nothing is left to be answered, and what comes next is a question of its own.
    assert await stage.system.unanswered() == []
    await fake.say("And now?")
    assert [sent.text for sent in await fake.replies(2)][1] == "Told: And now?"


async def test_a_message_from_another_place_is_answered_there(room: Room) -> None:
    """Its sender would not see the reply to the question."""
    stage = room.stage
    await room.begin(stage.slack)
    await stage.link(stage.telegram)
    assert (await stage.telegram.say(LATE)).status == 200
    room.gate.set()
    assert [sent.text for sent in await stage.slack.replies(1)] == [f"Told: {QUESTION}"]
    assert [sent.text for sent in await stage.telegram.replies(1)] == [f"Told: {LATE}"]
    assert [turn.taken_by for turn in await stage.turns()] == [None, None]


async def test_a_message_from_the_page_is_taken_into_a_reply_to_a_platform(room: Room) -> None:
    stage = room.stage
    await room.begin(stage.slack)
    home = await stage.home()
    asked = {"threadId": home.id, "message": LATE, "policy": "steer"}
    answering = asyncio.create_task(stage.http.post("/api/v1/ai/chat", json=asked, headers=stage.caller()))
    session = stage.as_user()
    async with asyncio.timeout(_LIMIT):
        while len(await session.active_turns(home.id)) < 2:
            async with stage.threadline.store.watch(session.scope, home.id) as watch:
                await watch.wait(0.1)
    room.gate.set()
    assert [sent.text for sent in await stage.slack.replies(1)] == [f"Told: {LATE}"]
    assert f"Told: {LATE}" in (await answering).text


async def test_a_platform_may_have_its_own_policy(tenant_id: str, clock: ManualClock) -> None:
    gate = asyncio.Event()
    describer = Describer(tool_gate=gate)
    store = await open_database(":memory:", clock=clock)
    changes: dict[str, Any] = {"agent": "studio", "own_agents": {"studio": describer.agent()}}
    changes |= {"channels": {"policy": "steer"}, "policies": {"slack": "queue"}}
    async with staging(store, tenant_id, clock, **changes) as staged:
        await Room(staged, describer, gate).begin(staged.slack)
        await staged.slack.say(LATE)
        gate.set()
        assert [sent.text for sent in await staged.slack.replies(2)] == [f"Told: {QUESTION}", f"Told: {LATE}"]
    await store.close()

"""A message with the policy `steer`, through the library and a client of a served Threadline, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

import threadline
from tests.client.conftest import IMPATIENT
from tests.conftest import postgres_database
from tests.service.conftest import SERVICE
from tests.service.running_service import serving
from tests.turns.steered_process import LATE, QUESTION, Describer
from threadline.client import connect
from threadline.core.errors import KeyReused, TurnRunning
from threadline.core.events import Finish, TextDelta
from threadline.core.messages import Message
from threadline.core.parts import DataPart
from threadline.ports import Gateway, GatewayThread
from threadline.settings import Settings

pytestmark = pytest.mark.req("A-06")
_LIMIT = 60


class Door(NamedTuple):
    gateway: Gateway
    gate: asyncio.Event
    describer: Describer

    async def begin(self) -> tuple[GatewayThread, asyncio.Task[Message]]:
        """A thread whose turn waits for its tool."""
        thread = await self.gateway.create_thread(agent_id="studio")

        async def ask() -> Message:
            return await thread.ask(QUESTION)

        asked = asyncio.create_task(ask())
        await asyncio.wait_for(self.describer.looking.wait(), _LIMIT)
        return thread, asked


@pytest.fixture(params=["library on sqlite", "library on postgres", "client on sqlite", "client on postgres"])
async def door(request: pytest.FixtureRequest, tmp_path: Path, tenant_id: str) -> AsyncIterator[Door]:
    kind, database = request.param.split(" on ")
    url = str(tmp_path / "t.db") if database == "sqlite" else await postgres_database()
    settings = Settings(database=url, tenant=tenant_id, agent="studio", service=SERVICE)
    gate = asyncio.Event()
    describer = Describer(tool_gate=gate)
    async with threadline.open(settings=settings, agents={"studio": describer.agent()}) as tl:
        if kind == "library":
            yield Door(tl.as_user(), gate, describer)
            return
        async with serving(tl) as service, connect(service.url, retry=IMPATIENT) as client:
            yield Door(client, gate, describer)


async def test_one_reply_answers_the_question_and_what_was_said_while_it_was_written(door: Door) -> None:
    thread, asked = await door.begin()
    late = thread.ask(LATE, key="k2", policy="steer")
    accepted = await late.accept()
    joined = await thread.ask(LATE, key="k2", policy="steer").accept()
    assert (accepted.status, joined.id) == ("accepted", accepted.id)
    with pytest.raises(KeyReused):
        await thread.ask("Something else.", key="k2", policy="steer").accept()
    with pytest.raises(TurnRunning):
        await thread.ask("Not now.", policy="reject").accept()
    door.gate.set()
    async with asyncio.timeout(_LIMIT):
        reply, answer = await asked, await late
        assert (reply.text, answer.id) == (f"Told: {LATE}", reply.id)
        ended = await late.ended()
        shown = [event async for event in late if isinstance(event, TextDelta | Finish)]
    assert (ended.status, ended.taken_by, ended.reply_seq) == ("executed", reply.turn_id, 2)
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == reply.text
    assert [message.text for message in await thread.messages()] == [QUESTION, LATE, reply.text]
    (marker,) = [part for part in reply.parts if isinstance(part, DataPart)]
    assert marker.data == {"messageId": (await thread.messages())[1].id, "turnId": accepted.id}


async def test_stopping_a_message_that_waits_leaves_the_reply_alone(door: Door) -> None:
    thread, asked = await door.begin()
    late = thread.ask(LATE, policy="steer")
    await late.accept()
    assert await late.stop()
    door.gate.set()
    async with asyncio.timeout(_LIMIT):
        assert (await asked).text == f"Told: {QUESTION}"
        assert (await late.ended()).status == "stopped"

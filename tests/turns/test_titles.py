"""Titles that the agent's model writes after the first reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.memory_model import MemoryModel
from threadline.bootstrap import Threadline
from threadline.core.errors import AgentFailed
from threadline.core.model_texts import TitleSettings
from threadline.ports import Store
from threadline.settings import Settings
from threadline.testing.clock import ManualClock
from threadline.turns.model_texts import clean_title


@pytest.fixture
def model() -> MemoryModel:
    return MemoryModel()


@pytest.fixture
async def threadline(store: Store, tenant_id: str, clock: ManualClock, model: MemoryModel) -> AsyncIterator[Threadline]:
    settings = Settings(tenant=tenant_id, user="alice", agent="keeper", titles=TitleSettings(seconds=5.0))
    made = Threadline(store, settings, clock, agents={"keeper": model.agent()})
    yield made
    await made.follow_ups.close(0)
    await made.runner.close()


@pytest.mark.req("A-07")
async def test_the_model_writes_the_title_after_the_first_reply_and_it_is_counted(
    threadline: Threadline, model: MemoryModel
) -> None:
    me = threadline.as_user()
    thread = await me.create_thread()
    await thread.ask("Is it warm in Porto?")
    await threadline.follow_ups.idle()
    assert ((await thread.refresh()).title, thread.info.title_by_person) == ("Weather and travel", False)
    await thread.ask("And in Faro?")
    await threadline.follow_ups.idle()
    assert model.titles == 1
    kinds = {row.kind: row.input_tokens for row in await me.usage(by=["kind"])}
    assert kinds == {"turn": 200, "title": 100}


@pytest.mark.req("A-07")
async def test_a_persons_title_is_never_replaced_also_not_in_a_race(threadline: Threadline, model: MemoryModel) -> None:
    me = threadline.as_user()
    named = await me.create_thread(title="Mine")
    await named.ask("Is it warm in Porto?")
    await threadline.follow_ups.idle()
    assert (await named.refresh()).title == "Mine"
    assert model.titles == 0
    model.gate = asyncio.Event()
    thread = await me.create_thread()
    await thread.ask("Is it warm in Porto?")
    await thread.update(title="Chosen while the model writes")
    model.gate.set()
    await threadline.follow_ups.idle()
    assert (await thread.refresh()).title == "Chosen while the model writes"


@pytest.mark.req("A-07")
@pytest.mark.parametrize("fault", ["", "\n \n", "word " * 100, AgentFailed("overloaded")])
async def test_without_a_usable_title_the_first_words_stay(
    threadline: Threadline, model: MemoryModel, fault: object
) -> None:
    model.fault = fault
    thread = await threadline.as_user().create_thread()
    await thread.ask("Is it warm in Porto?")
    await threadline.follow_ups.idle()
    assert (await thread.refresh()).title == "Is it warm in Porto?"


@pytest.mark.req("A-07")
async def test_titles_can_be_switched_off_and_need_a_model(
    store: Store, tenant_id: str, clock: ManualClock, model: MemoryModel
) -> None:
    off = Settings(tenant=tenant_id, user="alice", agent="keeper", titles=TitleSettings(by_model=False))
    for settings in (off, Settings(tenant=tenant_id, user="alice", agent="rehearsal")):
        threadline = Threadline(store, settings, clock, agents={"keeper": model.agent()})
        thread = await threadline.as_user().create_thread()
        await thread.ask("Hello there")
        await threadline.follow_ups.idle()
        assert (await thread.refresh()).title == "Hello there"
        await threadline.runner.close()
    assert model.titles == 0


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ('"A week in Lisbon."', "A week in Lisbon"),
        ("Title: **A week in Lisbon**", "A week in Lisbon"),
        ("# A week\nin Lisbon", "A week"),
        ("A\x1b[31m week\x00", "A [31m week"),
        ("...", ""),
        ("word " * 40, ""),
    ],
)
def test_a_written_title_is_cleaned(written: str, title: str) -> None:
    assert clean_title(written) == title

"""Compaction: what a model with a small window still knows after hundreds of turns, who wrote the summary, and what
happens when the model fails, the thread moves or a person edits the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conftest import OpenStore
from tests.memory_model import UNKNOWN, FailingModel, MemoryModel
from tests.service.running_service import serving
from threadline.bootstrap import Threadline
from threadline.client import connect
from threadline.core.errors import Conflict
from threadline.core.messages import user
from threadline.core.model_texts import CompactionSettings, TitleSettings
from threadline.core.parts import plain_text
from threadline.core.sealing import Limits
from threadline.core.tokens import total_tokens
from threadline.core.usage import Budget
from threadline.core.windows import Window
from threadline.ports import GatewayThread, Store
from threadline.settings import BudgetSettings, Settings, WindowSettings
from threadline.testing.clock import ManualClock

WINDOW = 1_500
SECRET = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 3


@pytest.fixture
def model() -> MemoryModel:
    return MemoryModel()


@pytest.fixture
def settings(tenant_id: str) -> Settings:
    windows = WindowSettings(reading=Window(tokens=WINDOW), channels=Window(turns=4))
    return Settings(
        tenant=tenant_id, user="alice", agent="keeper", windows=windows, titles=TitleSettings(by_model=False)
    )


def make(store: Store, settings: Settings, clock: ManualClock, model: MemoryModel) -> Threadline:
    return Threadline(store, settings, clock, agents={"keeper": model.agent()})


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """With the limits that are shipped: the usual ones of tests have no room for 500 turns."""
    return await open_store(limits=Limits())


@pytest.fixture
async def threadline(
    store: Store, settings: Settings, clock: ManualClock, model: MemoryModel
) -> AsyncIterator[Threadline]:
    made = make(store, settings, clock, model)
    yield made
    await made.follow_ups.close(0)
    await made.runner.close()


async def talk(threadline: Threadline, thread: GatewayThread, turns: int, start: int = 0) -> None:
    for number in range(start, start + turns):
        await thread.ask(f"Remark {number}: the weather is fine today, and the sea is calm.")
        await threadline.follow_ups.idle()


async def long_conversation(threadline: Threadline, thread: GatewayThread, model: MemoryModel, turns: int) -> None:
    await thread.ask("DECISION: we travel to Lisbon on 7 May.")
    await thread.ask("Measure the temperature.")
    await talk(threadline, thread, turns - 3)
    assert "7 May" in (await thread.ask("What about Lisbon?")).text
    assert "17 degrees" in (await thread.ask("What about Porto?")).text
    assert (await thread.ask("What about Madrid?")).text == UNKNOWN
    costs = [total_tokens(prompt) for prompt in model.prompts]
    assert max(costs) <= WINDOW
    # Flat: the prompts at the end are no longer than those after the first summaries.
    assert max(costs[-100:]) <= max(costs[:100]) * 1.1


@pytest.mark.req("A-05", "S4-13")
async def test_a_decision_and_a_tool_result_are_known_after_500_turns(
    threadline: Threadline, model: MemoryModel, store: Store
) -> None:
    thread = await threadline.as_user().create_thread()
    await long_conversation(threadline, thread, model, 500)
    assert (await thread.refresh()).message_count > 1_000
    summary = await thread.summary()
    assert summary is not None
    assert (summary.source, summary.label) == ("model", "summarised by the agent")
    kinds = {row.kind: row for row in await threadline.as_user().usage(by=["kind"])}
    assert kinds["summary"].input_tokens == 100 * len(model.summaries)
    assert (kinds["summary"].turns, kinds["turn"].turns) == (0, 502)


@pytest.mark.req("A-05")
async def test_the_same_over_http(threadline: Threadline, model: MemoryModel) -> None:
    async with serving(threadline) as client, connect(client.url) as gateway:
        thread = await gateway.create_thread()
        await long_conversation(threadline, thread, model, 150)
        summary = await thread.summary()
        assert summary is not None
        assert "7 May" in summary.text
        edited = await thread.set_summary("DECISION: we travel to Faro on 9 May.")
        assert await thread.summary() == edited
        assert "9 May" in (await thread.ask("What about Faro?")).text


@pytest.mark.req("A-05")
async def test_a_summary_never_holds_up_a_turn(threadline: Threadline, model: MemoryModel) -> None:
    model.gate = asyncio.Event()
    thread = await threadline.as_user().create_thread()
    for number in range(60):
        await thread.ask(f"Remark {number}: the weather is fine today, and the sea is calm.")
    assert await thread.summary() is None
    model.gate.set()
    await threadline.follow_ups.idle()
    assert len(model.summaries) >= 1
    assert await thread.summary() is not None


@pytest.mark.req("A-05")
async def test_two_processes_summarise_a_thread_once(
    threadline: Threadline, store: Store, settings: Settings, clock: ManualClock, model: MemoryModel
) -> None:
    thread = await threadline.as_user().create_thread()
    await thread.append(*[user(f"DECISION {number}: " + "word " * 100) for number in range(20)])
    other = make(store, settings, clock, model)
    model.gate = asyncio.Event()
    first = asyncio.create_task(thread.compact(budget=100))
    await model.waiting.wait()
    with pytest.raises(Conflict, match="being summarised"):
        await (await other.as_user().thread(thread.id)).compact(budget=100)
    model.gate.set()
    made = await first
    assert made is not None
    assert await thread.compact(budget=100_000) is None
    # A process that died left its claim: it ends.
    assert await store.scoped(threadline.as_user().scope).claim_compaction(thread.id, seconds=60)
    clock.advance(61)
    await thread.append(*[user(f"More {number}: " + "word " * 100) for number in range(20)])
    again = await (await other.as_user().thread(thread.id)).compact(budget=100)
    assert again is not None
    assert again.point.seq > made.point.seq


@pytest.mark.req("A-05")
@pytest.mark.parametrize("fault", ["", "far too long " * 1_000, RuntimeError("bug")])
async def test_without_a_usable_answer_only_what_no_longer_fits_becomes_a_labelled_extract(
    store: Store, settings: Settings, clock: ManualClock, fault: object
) -> None:
    model = FailingModel()
    model.fault = fault if not isinstance(fault, RuntimeError) else model.fault
    threadline = make(store, settings, clock, model)
    thread = await threadline.as_user().create_thread()
    await talk(threadline, thread, 60)
    summary = await thread.summary()
    assert summary is not None
    assert (summary.source, summary.model) == ("extract", None)
    assert "Remark 0" in summary.text
    assert len(summary.text) <= WINDOW
    shown = [plain_text(message.parts) for message in model.prompts[-1]]
    assert shown[0].startswith("Extract of the conversation so far, which is not complete:")
    # What follows it is shown whole: the extract takes the place of nothing that fits.
    assert total_tokens(model.prompts[-1]) > WINDOW * 0.7
    await talk(threadline, thread, 120, start=60)
    later = await thread.summary()
    assert later is not None
    assert len(later.text) <= WINDOW
    await threadline.runner.close()


@pytest.mark.req("A-05")
async def test_a_summary_of_what_was_undone_is_not_used(threadline: Threadline, model: MemoryModel) -> None:
    thread = await threadline.as_user().create_thread()
    await thread.ask("DECISION: we travel to Lisbon on 7 May.")
    await thread.save("early")
    await talk(threadline, thread, 5, start=0)
    await thread.ask("DECISION: we stay in Faro.")
    await talk(threadline, thread, 60, start=10)
    summary = await thread.summary()
    assert summary is not None
    assert "Faro" in summary.text
    branch = await thread.branch(at=4)
    assert await branch.summary() is None
    assert (await branch.ask("What about Faro?")).text == UNKNOWN
    assert "7 May" in (await branch.ask("What about Lisbon?")).text
    timeline = thread.timeline_id
    await thread.load("early")
    assert await thread.summary() is None
    assert (await thread.ask("What about Faro?")).text == UNKNOWN
    await thread.switch(timeline)
    assert await thread.summary() == summary
    assert "Faro" in (await thread.ask("What about Faro?")).text


@pytest.mark.req("A-05")
async def test_a_summary_is_dropped_if_the_thread_moves_or_a_person_edits_it_first(
    threadline: Threadline, model: MemoryModel
) -> None:
    thread = await threadline.as_user().create_thread()
    await thread.append(*[user(f"DECISION {number}: " + "word " * 100) for number in range(8)])
    assert await thread.compact(budget=200) is not None
    await thread.append(*[user(f"DECISION {number}: " + "word " * 100) for number in range(8, 16)])
    for change in (lambda: thread.set_summary("A person's words."), lambda: thread.rewind(9)):
        model.gate, model.waiting = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(thread.compact(budget=200))
        await model.waiting.wait()
        await change()
        model.gate.set()
        with pytest.raises(Conflict, match="read it again"):
            await running
        summary = await thread.summary()
        assert summary is not None
        assert summary.text == "A person's words."


@pytest.mark.req("A-05")
async def test_what_is_masked_stays_masked_and_a_refused_request_is_not_summarised(
    threadline: Threadline, model: MemoryModel
) -> None:
    thread = await threadline.as_user().create_thread()
    await thread.append(*[user(f"DECISION {number}: the key is {SECRET} " + "word " * 50) for number in range(8)])
    summary = await thread.compact(budget=100)
    assert summary is not None
    assert SECRET not in summary.text + "".join(model.summaries)
    assert "[masked:" in summary.text
    edited = await thread.set_summary(f"The key is {SECRET}.")
    assert SECRET not in edited.text


@pytest.mark.req("A-05")
async def test_channels_summarise_the_turns_that_left_their_window(threadline: Threadline, model: MemoryModel) -> None:
    me = threadline.as_user(surface="slack")
    thread = await me.create_thread()
    await thread.ask("DECISION: we travel to Lisbon on 7 May.")
    for number in range(20):
        await thread.ask(f"Remark {number}")
        await threadline.follow_ups.idle()
    last = [message for message in model.prompts[-1] if message.role == "user"]
    assert len(last) == 5
    assert "7 May" in (await thread.ask("What about Lisbon?")).text


@pytest.mark.req("A-05", "C-07")
async def test_a_used_up_budget_or_a_setting_leaves_the_model_alone(
    store: Store, settings: Settings, clock: ManualClock, model: MemoryModel
) -> None:
    off = _replaced(settings, compaction=CompactionSettings(automatic=False))
    threadline = make(store, off, clock, model)
    thread = await threadline.as_user().create_thread()
    await talk(threadline, thread, 40)
    assert await thread.summary() is None
    poor = _replaced(settings, budgets=BudgetSettings(user=Budget(tokens_per_day=1)))
    summary = await (await make(store, poor, clock, model).as_user().thread(thread.id)).compact(budget=100)
    assert summary is not None
    assert summary.source == "extract"
    assert model.summaries == []


def _replaced(settings: Settings, **changes: object) -> Settings:
    return Settings(**{**{name: getattr(settings, name) for name in settings.__struct_fields__}, **changes})

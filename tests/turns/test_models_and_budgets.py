"""The model of a turn, what turns used, and budgets: through the library, on each database."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, ClassVar

import msgspec
import pytest

from threadline.agents.function import as_agent
from threadline.bootstrap import Threadline
from threadline.core.errors import AgentFailed, BudgetExceeded, InvalidInput, KeyReused, RoleRefused, SettingsInvalid
from threadline.core.events import Event, StepStart, TextDelta, ToolCall, ToolResult, Usage
from threadline.core.messages import new_message
from threadline.core.parts import ToolPart
from threadline.core.prompts import Prompt
from threadline.core.usage import Budget, Price
from threadline.ports import Spending, SpendingRefusal, Store
from threadline.settings import AgentSettings, BudgetSettings, Settings
from threadline.testing.clock import ManualClock

pytestmark = pytest.mark.parametrize("database", ["memory", "postgres"], indirect=True)

PRICES = {"small": Price(input=1.0, output=2.0, cached=0.5), "openai/large": Price(input=100.0, output=200.0)}
FUNCTION = "tests.turns.test_models_and_budgets:answer"
AGENTS = {"helper": AgentSettings("function", "small", settings={"function": FUNCTION, "models": ["large"]})}


class Recorder:
    """What the agent was asked with, and how often."""

    models: ClassVar[list[str | None]] = []


async def answer(prompt: Prompt) -> AsyncGenerator[Event, None]:
    """Uses 150 tokens."""
    Recorder.models.append(prompt.model)
    yield TextDelta("Fine.")
    yield Usage(100, 50, 20)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    models: list[str | None] = []
    monkeypatch.setattr(Recorder, "models", models)
    return models


class Open:
    def __init__(self, store: Store, tenant_id: str, clock: ManualClock) -> None:
        self._store, self._tenant_id, self._clock = store, tenant_id, clock
        self.opened: list[Threadline] = []

    def __call__(
        self, budgets: BudgetSettings | None = None, admission: Any = None, agents: dict[str, Any] | None = None
    ) -> Threadline:
        settings = Settings(
            tenant=self._tenant_id,
            user="alice",
            agent="helper",
            agents=AGENTS,
            prices=PRICES,
            currency="EUR",
            budgets=budgets or BudgetSettings(),
        )
        made = {name: as_agent(agent) for name, agent in (agents or {}).items()}
        self.opened.append(Threadline(self._store, settings, self._clock, agents=made, admission=admission))
        return self.opened[-1]


@pytest.fixture
async def opening(store: Store, tenant_id: str, clock: ManualClock) -> AsyncIterator[Open]:
    made = Open(store, tenant_id, clock)
    yield made
    for threadline in made.opened:
        await threadline.runner.close()


@pytest.mark.req("C-06")
async def test_the_model_of_the_request_comes_before_the_threads_and_the_agents(
    opening: Open, asked: list[str | None]
) -> None:
    me = opening().as_user()
    thread = await me.create_thread()
    await thread.ask("agent's")
    await thread.ask("request's", model="large")
    await thread.update(model="large")
    await thread.ask("thread's")
    await thread.ask("request's again", model="small")
    assert asked == ["small", "large", "large", "small"]
    turns = await thread.turns()
    assert [(turn.provider, turn.model) for turn in turns] == [
        ("function", model) for model in ("small", "large", "large", "small")
    ]
    assert turns[0].usage == {
        "input_tokens": 100, "output_tokens": 50, "cached_tokens": 20, "reasoning_tokens": 0, "cost": 0.00019,
    }  # fmt: skip
    assert "cost" not in turns[1].usage, "openai/large is the model of another provider"


@pytest.mark.req("C-06")
async def test_a_model_that_the_agent_does_not_offer_is_refused_and_nothing_is_stored(
    opening: Open, asked: list[str | None]
) -> None:
    me = opening().as_user()
    thread = await me.create_thread()
    with pytest.raises(InvalidInput, match="`model` must be one of small, large, got 'huge'"):
        await thread.ask("Hi", model="huge")
    assert (await thread.messages(), await thread.turns(), asked) == ([], [], [])
    await thread.update(model="huge")
    with pytest.raises(AgentFailed, match="must be one of small, large"):
        await thread.ask("Hi")
    assert asked == []


async def test_a_threads_model_is_not_asked_of_another_agent(opening: Open, asked: list[str | None]) -> None:
    async def other(prompt: Prompt) -> str:
        asked.append(prompt.model)
        return "Other."

    me = opening(agents={"other": other}).as_user()
    thread = await me.create_thread(agent_id="helper", model="large")
    await thread.ask("Hi", agent="other")
    await thread.ask("Hi", agent="other", model="any")
    assert asked == [None, "any"]


async def test_the_same_key_with_another_model_is_another_request(opening: Open) -> None:
    thread = await opening().as_user().create_thread()
    first = await thread.ask("Hi", model="large", key="k")
    assert await thread.ask("Hi", model="large", key="k") == first
    with pytest.raises(KeyReused):
        await thread.ask("Hi", model="small", key="k")


@pytest.mark.req("C-07")
async def test_usage_is_listed_by_day_user_agent_and_model(opening: Open, clock: ManualClock) -> None:
    threadline = opening()
    for user in ("alice", "bob"):
        await (await threadline.as_user(user).create_thread()).ask("Hi")
    await (await threadline.as_user("alice").create_thread()).ask("Hi", model="large")
    (own,) = await threadline.as_user("alice").usage()
    assert (own.turns, own.input_tokens, own.output_tokens, own.cached_tokens, own.cost) == (2, 200, 100, 40, 0.00019)
    admin = threadline.as_user("root", role="admin")
    found = await admin.usage(by=["user", "model"])
    assert [(row.user_id, row.provider, row.model, row.turns) for row in found] == [
        ("alice", "function", "large", 1), ("alice", "function", "small", 1), ("bob", "function", "small", 1),
    ]  # fmt: skip
    (day,) = await admin.usage(by=["day"], user="bob")
    assert (day.day, day.turns) == (clock.now().date(), 1)
    assert await admin.usage(until=clock.now().date() - dt.timedelta(1), since=dt.date(2025, 12, 1)) == []
    with pytest.raises(RoleRefused):
        await threadline.as_user("alice").usage(user="bob")
    with pytest.raises(InvalidInput, match="`by` must be one of day, user, agent, model, kind, got 'thread'"):
        await admin.usage(by=["thread"])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="0–365 days before"):
        await admin.usage(since=dt.date(2020, 1, 1))


@pytest.mark.req("C-07")
@pytest.mark.parametrize(
    ("budgets", "whose"),
    [
        (BudgetSettings(user=Budget(tokens_per_day=200)), "user"),
        (BudgetSettings(user=Budget(tokens_per_month=300)), "user"),
        (BudgetSettings(user=Budget(cost_per_day=0.0003)), "user"),
        (BudgetSettings(tenant=Budget(tokens_per_day=300)), "tenant"),
        (BudgetSettings(agent=Budget(tokens_per_month=300)), "agent"),
        (BudgetSettings(agent=Budget(tokens_per_day=1), agents={"helper": Budget(tokens_per_day=300)}), "agent"),
    ],
)
async def test_a_budget_refuses_before_the_model_is_called_and_nothing_is_stored(
    opening: Open, budgets: BudgetSettings, whose: str, asked: list[str | None]
) -> None:
    thread = await opening(budgets).as_user().create_thread()
    await thread.ask("One")
    await thread.ask("Two")
    with pytest.raises(BudgetExceeded, match="is used up: it renews on") as caught:
        await thread.ask("Three")
    assert (caught.value.budget, caught.value.resets_at is not None) == (whose, True)
    assert (len(asked), len(await thread.messages()), len(await thread.turns())) == (2, 4, 2)
    another = await opening(budgets).as_user("bob").create_thread()
    if whose == "user":
        await another.ask("I have a budget of my own")
    else:
        with pytest.raises(BudgetExceeded):
            await another.ask("I share it")


@pytest.mark.req("C-07")
async def test_a_budget_renews_with_its_period_and_other_tenants_have_their_own(
    opening: Open, clock: ManualClock, tenant_id: str
) -> None:
    threadline = opening(BudgetSettings(tenant=Budget(tokens_per_day=150)))
    thread = await threadline.as_user().create_thread()
    await thread.ask("One")
    with pytest.raises(BudgetExceeded) as caught:
        await thread.ask("Two")
    elsewhere = await threadline.as_user("alice", tenant=f"{tenant_id}-other").create_thread()
    await elsewhere.ask("One")
    assert caught.value.resets_at is not None
    clock.advance((caught.value.resets_at - clock.now()).total_seconds())
    await thread.ask("Two")


async def test_a_repeated_request_gets_its_reply_after_the_budget_is_used_up(opening: Open) -> None:
    thread = await opening(BudgetSettings(user=Budget(tokens_per_day=150))).as_user().create_thread()
    question = new_message("user", "One", id="q1")
    first = await thread.ask(question, key="k")
    assert await thread.ask(question, key="k") == first
    assert await thread.ask(question) == first
    with pytest.raises(BudgetExceeded):
        await thread.ask("Two", key="k2")


@pytest.mark.req("C-07")
async def test_a_budget_that_runs_out_ends_the_turn_before_its_next_call_and_keeps_what_was_shown(
    opening: Open, asked: list[str | None]
) -> None:
    async def works(prompt: Prompt) -> AsyncGenerator[Event, None]:
        for number in range(5):
            asked.append(None)
            yield StepStart()
            yield TextDelta(f"Round {number}. ")
            yield ToolCall(f"c{number}", "look", {})
            yield Usage(100, 0)
            yield ToolResult(f"c{number}", "seen")

    budgets = BudgetSettings(user=Budget(tokens_per_day=200))
    me = opening(budgets, agents={"worker": works}).as_user()
    thread = await me.create_thread(agent_id="worker")
    with pytest.raises(AgentFailed, match="is used up"):
        await thread.ask("Work")
    (turn,) = await thread.turns()
    assert (turn.status, turn.usage["input_tokens"]) == ("dispatch_failed", 200)
    reply = (await thread.messages())[-1]
    assert (reply.role, reply.text) == ("assistant", "Round 0. \n\nRound 1. ")
    assert [part.state for part in reply.parts if isinstance(part, ToolPart)] == ["output-available"] * 2
    (used,) = await me.usage()
    assert (used.turns, used.input_tokens) == (1, 200)


async def test_a_reply_that_uses_the_budget_up_is_complete(opening: Open) -> None:
    thread = await opening(BudgetSettings(user=Budget(tokens_per_day=10))).as_user().create_thread()
    assert (await thread.ask("One")).text == "Fine."
    assert (await thread.turns())[0].status == "executed"


class Billing:
    """A host application's own account: two turns for everybody."""

    def __init__(self) -> None:
        self.checked: list[Spending] = []
        self.recorded: list[Spending] = []

    async def check(self, spending: Spending) -> SpendingRefusal | None:
        self.checked.append(spending)
        if len(self.recorded) >= 2 and spending.turn_id is None:
            return SpendingRefusal("your plan has no turns left", "plan")
        return None

    async def record(self, spending: Spending) -> None:
        self.recorded.append(spending)


@pytest.mark.req("C-07")
async def test_a_host_application_can_plug_in_its_billing(opening: Open, tenant_id: str) -> None:
    billing = Billing()
    thread = await opening(admission=billing).as_user("ada").create_thread()
    await thread.ask("One", model="large")
    await thread.ask("Two")
    with pytest.raises(BudgetExceeded, match="no turns left") as caught:
        await thread.ask("Three")
    assert (caught.value.budget, caught.value.resets_at) == ("plan", None)
    first, *_ = billing.checked
    assert (first.tenant_id, first.user_id, first.surface, first.turn_id) == (tenant_id, "ada", "api", None)
    assert (first.charge.agent_id, first.charge.provider, first.charge.model) == ("helper", "function", "large")
    assert [(spending.charge.usage, spending.charge.model) for spending in billing.recorded] == [
        (Usage(100, 50, 20), "large"), (Usage(100, 50, 20), "small"),
    ]  # fmt: skip
    assert [spending.turn_id for spending in reversed(billing.recorded)] == [turn.id for turn in await thread.turns()]


async def test_billing_that_fails_to_record_does_not_fail_the_turn(opening: Open) -> None:
    class Broken(Billing):
        async def record(self, spending: Spending) -> None:
            raise RuntimeError("the billing service is down")

    thread = await opening(admission=Broken()).as_user().create_thread()
    assert (await thread.ask("One")).text == "Fine."


async def test_absurd_numbers_of_an_agent_are_cut_off(opening: Open) -> None:
    async def boasts(prompt: Prompt) -> AsyncGenerator[Event, None]:
        yield TextDelta("Much.")
        yield Usage(10**40, -5)

    thread = await opening(agents={"boasts": boasts}).as_user().create_thread(agent_id="boasts")
    await thread.ask("Hi")
    usage = (await thread.turns())[0].usage
    assert (usage["input_tokens"], usage["output_tokens"]) == (400_000_000, 0)


async def test_a_budget_of_costs_without_prices_is_an_error_of_the_settings(store: Store, clock: ManualClock) -> None:
    given = Settings(budgets=BudgetSettings(user=Budget(cost_per_day=1.0)))
    with pytest.raises(SettingsInvalid, match=r"set \[prices\]"):
        Threadline(store, given, clock)
    Threadline(store, msgspec.structs.replace(given, prices=PRICES), clock)

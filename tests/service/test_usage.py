"""Models, usage and budgets over HTTP: what a request may choose, who may list what, and the typed refusal."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE, authenticate_by_header
from tests.service.running_service import THREADS, Client, client_of, serving, streamed_text
from threadline.bootstrap import open as open_threadline
from threadline.core.usage import Budget, Price
from threadline.settings import AgentSettings, BudgetSettings, Settings

USAGE = "/api/v1/usage"
MESSAGE = "/api/v1/agents/helper/message"
AGENTS = {
    "helper": AgentSettings("rehearsal", "small", settings={"models": ["large"]}),
    "any": AgentSettings("rehearsal"),
}
PRICES = {"small": Price(1.0, 2.0)}
USERS = {
    "alice": {"test-user": "alice"},
    "bob": {"test-user": "bob"},
    "admin": {"test-user": "root", "test-role": "admin"},
    "other_tenant": {"test-user": "root", "test-role": "admin", "test-tenant": "other"},
}


def settings(budgets: BudgetSettings | None = None) -> Settings:
    given = budgets or BudgetSettings()
    return Settings(
        database=":memory:",
        agent="helper",
        agents=AGENTS,
        prices=PRICES,
        currency="EUR",
        budgets=given,
        service=SERVICE,
    )


async def _people(chosen: Settings) -> AsyncIterator[dict[str, Client]]:
    async with (
        open_threadline(settings=chosen) as threadline,
        serving(threadline, authenticate=authenticate_by_header) as anyone,
    ):
        clients = {name: client_of(anyone.url, headers) for name, headers in USERS.items()}
        yield clients
        for client in clients.values():
            await client.close()


@pytest.fixture
async def users() -> AsyncIterator[dict[str, Client]]:
    async for clients in _people(settings()):
        yield clients


@pytest.fixture
async def poor() -> AsyncIterator[dict[str, Client]]:
    """Users with a budget of one token a day."""
    async for clients in _people(settings(BudgetSettings(user=Budget(tokens_per_day=1)))):
        yield clients


@pytest.mark.req("C-06")
async def test_a_chat_request_names_its_model_and_the_turn_records_it(users: dict[str, Client]) -> None:
    alice = users["alice"]
    await alice.ask("Hi", "key")
    await alice.ask("Hi again", "key", model="large")
    asked = {"content": "And again", "stateKey": "key", "model": "large"}
    assert (await alice.http.post(MESSAGE, json=asked)).status_code == 200
    turns = (await alice.http.get(f"{THREADS}/key/turns")).json()["turns"]
    assert [(turn["provider"], turn["model"]) for turn in turns] == [
        ("rehearsal", "large"), ("rehearsal", "large"), ("rehearsal", "small"),
    ]  # fmt: skip
    assert turns[2]["usage"].keys() == {"inputTokens", "outputTokens", "cachedTokens", "reasoningTokens", "cost"}
    assert "cost" not in turns[0]["usage"]


@pytest.mark.req("C-06")
@pytest.mark.parametrize("stored", [True, False])
async def test_a_model_that_is_not_offered_is_refused(users: dict[str, Client], stored: bool) -> None:
    alice = users["alice"]
    thread = {"stateKey": "key"} if stored else {}
    answer = await alice.http.post(MESSAGE, json={"content": "Hi", "model": "huge", **thread})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["detail"] == "`model` must be one of small, large, got 'huge'"
    for wrong in (1, ["large"]):
        assert (await alice.http.post(MESSAGE, json={"content": "Hi", "model": wrong, **thread})).status_code == 400
    chat = {"id": "key", "message": {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}, "model": "huge"}
    assert (await alice.http.post("/api/v1/ai/chat", json=chat)).status_code == 400
    assert (await alice.http.get(THREADS)).json() == {"threads": []}
    assert (await users["admin"].http.get(USAGE)).json()["usage"] == []
    listed = (await alice.http.get("/api/v1/agents")).json()
    assert listed["models"] == {"helper": ["small", "large"]}


@pytest.mark.req("C-07")
async def test_an_administrator_sees_the_tenant_a_user_themselves_and_another_tenant_nothing(
    users: dict[str, Client],
) -> None:
    await users["alice"].ask("Hi", "key")
    await users["bob"].ask("Hi", "key", model="large")
    await users["bob"].http.post(MESSAGE, json={"content": "Without a thread"})
    today = str(dt.datetime.now(dt.UTC).date())
    listed = (await users["admin"].http.get(USAGE, params={"by": "user,agent,model,day"})).json()
    assert listed["currency"] == "EUR"
    keys = [(row["day"], row["user"], row["agent"], row["provider"], row["model"]) for row in listed["usage"]]
    assert keys == [
        (today, "alice", "helper", "rehearsal", "small"),
        (today, "bob", "helper", "rehearsal", "large"),
        (today, "bob", "helper", "rehearsal", "small"),
    ]
    assert [("cost" in row, row["turns"]) for row in listed["usage"]] == [(True, 1), (False, 1), (True, 1)]
    (own,) = (await users["bob"].http.get(USAGE)).json()["usage"]
    assert (own["turns"], "user" in own) == (2, False)
    assert (await users["bob"].http.get(USAGE, params={"user": "bob"})).json()["usage"] == [own]
    assert (await users["admin"].http.get(USAGE, params={"user": "bob"})).json()["usage"] == [own]
    refused = await users["bob"].http.get(USAGE, params={"user": "alice"})
    assert (refused.status_code, refused.json()["code"]) == (403, "role_refused")
    for params in ({}, {"user": "alice"}, {"by": "user"}):
        assert (await users["other_tenant"].http.get(USAGE, params=params)).json()["usage"] == []


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"by": "thread"}, "`by` must be one of day, user, agent, model, kind, got 'thread'"),
        ({"by": "day,"}, "`by` must be one of day, user, agent, model, kind, got ''"),
        ({"since": "yesterday"}, "`since` must be"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "`since` must be 0–365 days before `until`"),
        ({"from": "2026-11-02"}, "`from` is not a known key"),
    ],
)
async def test_a_wrong_query_is_refused(users: dict[str, Client], params: dict[str, str], fault: str) -> None:
    answer = await users["admin"].http.get(USAGE, params=params)
    assert (answer.status_code, answer.json()["detail"].startswith(fault)) == (400, True), answer.text


@pytest.mark.req("C-07")
async def test_a_used_up_budget_is_402_with_details_on_every_route_and_stores_nothing(poor: dict[str, Client]) -> None:
    alice = poor["alice"]
    await alice.ask("Hi", "key")
    chat = {"id": "key", "message": {"role": "user", "parts": [{"type": "text", "text": "More"}]}}
    for path, body in (
        ("/api/v1/ai/chat", chat),
        (MESSAGE, {"content": "More", "stateKey": "key"}),
        (MESSAGE, {"content": "More"}),
        ("/api/v1/agents/helper/stream", {"content": "More"}),
    ):
        refused = await alice.http.post(path, json=body)
        told: dict[str, Any] = refused.json()
        assert (refused.status_code, told["code"], told["budget"]) == (402, "budget_exceeded", "user"), path
        assert told["detail"].startswith("your budget of 1 tokens a day is used up: it renews on")
        assert dt.datetime.fromisoformat(told["resetsAt"]) > dt.datetime.now(dt.UTC)
        assert "retry-after" not in refused.headers
    assert len(await alice.messages("key")) == 2
    assert (await poor["bob"].http.post(MESSAGE, json={"content": "Mine"})).status_code == 200


@pytest.mark.req("C-07")
async def test_a_stream_without_a_thread_ends_when_the_budget_does(poor: dict[str, Client]) -> None:
    # The rehearsal agent calls a model twice for a calculation; the first call uses the budget up.
    scripted = ScriptedAgent()
    chosen = settings(BudgetSettings(user=Budget(tokens_per_day=1)))
    async with (
        open_threadline(settings=chosen, agents={"scripted": make_agent(scripted)}) as threadline,
        serving(threadline) as client,
    ):
        answer = await client.http.post("/api/v1/agents/scripted/stream", json={"content": "Hi"})
        chunks = client.chunks(answer)
        assert streamed_text(chunks) == ""
        assert "is used up" in chunks[-1]["errorText"]


async def test_tokens_are_counted_by_model(users: dict[str, Client]) -> None:
    await users["alice"].ask("Hi", "key", model="large")
    metrics = (await users["admin"].http.get("/metrics")).text
    assert 'threadline_tokens_total{direction="input",model="large"}' in metrics

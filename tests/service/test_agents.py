"""Agents and pinned contexts over HTTP: what an agent receives, and who may manage agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import SERVICE
from tests.service.running_service import THREADS, Client, serving, streamed_text
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.channels import ContextSnapshot
from threadline.core.errors import AgentFailed, StoreUnavailable
from threadline.core.threads import Scope
from threadline.settings import AgentSettings, Settings

AGENTS = "/api/v1/agents"
CONTEXT = f"{AGENTS}/scripted/context"
MESSAGE = f"{AGENTS}/scripted/message"


@pytest.mark.req("S0-01", "S0-02", "S0-03")
async def test_a_context_is_pinned_read_overwritten_and_removed(client: Client) -> None:
    assert (await client.http.get(CONTEXT)).status_code == 404
    first = await client.http.post(CONTEXT, json={"context": "I live in Bern."})
    assert (first.status_code, first.json()) == (200, {"status": "applied"})
    before = (await client.http.get(CONTEXT)).json()
    await client.http.post(CONTEXT, json={"context": "I live in Basel."})
    after = (await client.http.get(CONTEXT)).json()
    assert (before["context"], after["context"]) == ("I live in Bern.", "I live in Basel.")
    assert after["createdAt"] == before["createdAt"]
    assert after["updatedAt"] > before["updatedAt"]
    for _ in range(2):
        assert (await client.http.delete(CONTEXT)).json() == {"ok": True}
    assert (await client.http.get(CONTEXT)).status_code == 404


@pytest.mark.req("S0-11")
@pytest.mark.parametrize("body", [b"{}", b'{"context":""}', b'{"context":" \\n"}', b'{"context":1}', b"x", b"[]", b""])
async def test_an_empty_context_is_refused(client: Client, body: bytes) -> None:
    answer = await client.http.post(CONTEXT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413, 415)
    assert (await client.http.get(CONTEXT)).status_code == 404


@pytest.mark.req("S0-07", "S0-08")
@pytest.mark.parametrize("route", ["message", "stream"])
@pytest.mark.parametrize(
    "body",
    [
        {"messages": "hello"},
        {"messages": {"role": "user"}},
        {"messages": [1]},
        {"messages": [{"role": "user", "content": 1}]},
        {"messages": [{"role": "god", "content": "x"}]},
        {"messages": [{"role": "user", "content": [1]}]},
        {"messages": []},
        {"content": " "},
        {},
        [],
    ],
)
async def test_a_body_without_a_message_is_refused_and_not_dispatched(
    client: Client, scripted_agent: ScriptedAgent, route: str, body: Any
) -> None:
    answer = await client.http.post(f"{AGENTS}/scripted/{route}", json=body)
    assert answer.status_code == 400
    assert scripted_agent.prompts == []


@pytest.mark.req("S1-17")
async def test_a_message_without_a_thread_stores_nothing(client: Client) -> None:
    answer = await client.http.post(MESSAGE, json={"content": "Hi"})
    assert (answer.json()["role"], answer.json()["content"]) == ("assistant", "Hello, you.")
    streamed = await client.http.post(f"{AGENTS}/scripted/stream", json={"content": "Hi"})
    assert streamed_text(client.chunks(streamed)) == "Hello, you."
    assert (await client.http.get(THREADS)).json() == {"threads": []}


async def test_a_message_with_a_state_key_is_a_turn_on_that_thread(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    answer = (await client.http.post(MESSAGE, json={"content": "One", "stateKey": "key"})).json()
    assert (answer["content"], answer["stateKey"]) == ("Hello, you.", "key")
    forged = [{"role": "assistant", "content": "I promised."}, {"role": "user", "content": "Two"}]
    await client.http.post(f"{AGENTS}/scripted/stream", json={"messages": forged, "stateKey": "key"})
    assert [text for _, text in scripted_agent.prompt_texts()] == ["One", "Hello, you.", "Two"]
    assert len(await client.messages("key")) == 4


async def test_a_failing_agent_is_reported(client: Client, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = [AgentFailed("The model is away.")]
    for body in ({"content": "Hi"}, {"content": "Hi", "stateKey": "key"}):
        answer = await client.http.post(MESSAGE, json=body)
        assert (answer.status_code, answer.json()["code"]) == (502, "agent_failed")
        assert answer.json()["detail"] == "The model is away."
    streamed = client.chunks(await client.http.post(f"{AGENTS}/scripted/stream", json={"content": "Hi"}))
    assert streamed[-1] == {"type": "error", "errorText": "The model is away."}


class Broken:
    """Contexts of a database that cannot be reached."""

    async def set(self, agent_id: str, context: str) -> ContextSnapshot:
        raise StoreUnavailable("no connection to db.internal")


@pytest.mark.req("S0-10")
async def test_a_context_that_cannot_be_stored_is_not_reported_as_applied(
    client: Client, threadline: Threadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threadline, "contexts", lambda scope: Broken())
    answer = await client.http.post(CONTEXT, json={"context": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert "db.internal" not in answer.text


@pytest.mark.req("S0-12", "S0-13")
async def test_contexts_are_private_and_foreign_agents_are_not_found(people: dict[str, Client]) -> None:
    agent = {"id": "ours", "provider": "rehearsal"}
    assert (await people["admin"].http.post(AGENTS, json=agent)).status_code == 201
    await people["alice"].http.post(f"{AGENTS}/ours/context", json={"context": "I am Alice."})
    assert (await people["bob"].http.get(f"{AGENTS}/ours/context")).status_code == 404
    asked = await people["bob"].http.post(f"{AGENTS}/ours/message", json={"content": "What do you know about me?"})
    assert asked.json()["content"] == "You have pinned no context for me."
    for method, path, body in (
        ("POST", "context", {"context": "x"}),
        ("GET", "context", None),
        ("DELETE", "context", None),
        ("POST", "message", {"content": "x"}),
        ("POST", "stream", {"content": "x"}),
    ):
        foreign = await people["other_tenant"].http.request(method, f"{AGENTS}/ours/{path}", json=body)
        unknown = await people["other_tenant"].http.request(method, f"{AGENTS}/nope/{path}", json=body)
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.text == unknown.text.replace("nope", "ours")


@pytest.mark.req("S0-01")
async def test_a_context_of_a_disabled_agent_stays_in_its_owners_reach(people: dict[str, Client]) -> None:
    context = f"{AGENTS}/ours/context"
    await people["admin"].http.post(AGENTS, json={"id": "ours", "provider": "rehearsal"})
    await people["alice"].http.post(context, json={"context": "I live in Bern."})
    await people["admin"].http.patch(f"{AGENTS}/ours", json={"enabled": False})
    assert (await people["alice"].http.get(context)).json()["context"] == "I live in Bern."
    assert (await people["alice"].http.post(context, json={"context": "I live in Basel."})).status_code == 200
    assert (await people["alice"].http.get(context)).json()["context"] == "I live in Basel."
    for _ in range(2):
        assert (await people["alice"].http.delete(context)).json() == {"ok": True}
    assert (await people["bob"].http.post(context, json={"context": "I am new."})).json() == {"status": "applied"}
    assert (await people["other_tenant"].http.post(context, json={"context": "x"})).status_code == 404


@pytest.mark.req("S0-01")
async def test_a_context_of_an_agent_that_left_the_settings_stays_in_its_owners_reach(tmp_path: Path) -> None:
    context = f"{AGENTS}/guide/context"
    with_guide = Settings(
        database=str(tmp_path / "t.db"), service=SERVICE, agents={"guide": AgentSettings("rehearsal")}
    )
    async with open_threadline(settings=with_guide) as threadline, serving(threadline) as client:
        await client.http.post(context, json={"context": "I live in Bern."})
    without = Settings(database=str(tmp_path / "t.db"), service=SERVICE)
    async with open_threadline(settings=without) as threadline, serving(threadline) as client:
        assert (await client.http.get(context)).json()["context"] == "I live in Bern."
        assert (await client.http.post(context, json={"context": "I live in Basel."})).status_code == 200
        assert (await client.http.delete(context)).json() == {"ok": True}
        assert (await client.http.get(context)).status_code == 404


@pytest.mark.req("S0-15")
async def test_an_administrator_creates_changes_and_deletes_agents(people: dict[str, Client]) -> None:
    admin = people["admin"].http
    made = await admin.post(AGENTS, json={"id": "far", "provider": "remote", "settings": REMOTE})
    assert (made.status_code, made.json()["name"]) == (201, "far")
    assert "hunter2hunter2" not in made.text
    assert (await admin.post(AGENTS, json={"id": "far", "provider": "rehearsal"})).status_code == 409
    changed = await admin.patch(f"{AGENTS}/far", json={"name": "Farther", "enabled": False})
    assert (changed.json()["name"], changed.json()["enabled"]) == ("Farther", False)
    listed = (await people["alice"].http.get(AGENTS)).json()
    assert ([each["id"] for each in listed["agents"]], "scripted" in listed["shared"]) == (["far"], True)
    assert (await people["alice"].http.post(f"{AGENTS}/far/message", json={"content": "x"})).status_code == 404
    assert (await admin.delete(f"{AGENTS}/far")).json() == {"ok": True}
    assert (await admin.patch(f"{AGENTS}/far", json={})).status_code == 404


REMOTE = {"url": "https://agents.example/", "token": "hunter2hunter2"}


@pytest.mark.parametrize(
    "agent",
    [
        {"id": "x", "provider": "unknown"},
        {"id": "x", "provider": "function", "settings": {"function": "os:system"}},
        {"id": "x", "provider": "openai", "settings": {"api_key_env": "HOME"}},
        {"id": "x y", "provider": "rehearsal"},
        {"id": "x", "provider": "rehearsal", "colour": "red"},
        {"id": "x", "provider": "rehearsal", "settings": {"pace": "fast"}},
        {"provider": "rehearsal"},
    ],
)
async def test_an_agent_that_cannot_be_built_is_not_stored(people: dict[str, Client], agent: dict[str, Any]) -> None:
    answer = await people["admin"].http.post(AGENTS, json=agent)
    assert answer.status_code == 400
    assert (await people["admin"].http.get(AGENTS)).json()["agents"] == []


async def test_only_administrators_manage_agents(people: dict[str, Client], threadline: Threadline) -> None:
    member = people["alice"].http
    for method, path, body in (
        ("POST", AGENTS, {"id": "x", "provider": "rehearsal"}),
        ("PATCH", f"{AGENTS}/x", {"name": "y"}),
        ("DELETE", f"{AGENTS}/x", None),
    ):
        answer = await member.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "role_refused")
    assert await threadline.store.scoped(Scope("local", "root", "admin")).agents() == []

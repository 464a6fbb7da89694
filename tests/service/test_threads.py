"""Threads over HTTP: list, history, branch, undo, save, load, export and import, each for their owner only."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import held
from tests.service.running_service import CHAT, THREADS, Client

SAVES = "/api/v1/ai/saves"


@pytest.mark.req("S1-22")
async def test_threads_are_listed_latest_first_and_paged_by_cursor_or_offset(client: Client) -> None:
    for key in ("a", "b", "c"):
        await client.ask(f"Hi from {key}", key)
    first = (await client.http.get(THREADS, params={"limit": 2})).json()
    assert [(each["stateKey"], each["title"], each["messageCount"]) for each in first["threads"]] == [
        ("c", "Hi from c", 2),
        ("b", "Hi from b", 2),
    ]
    for more in ({"cursor": first["nextCursor"]}, {"offset": 2}):
        rest = (await client.http.get(THREADS, params={"limit": 2, **more})).json()
        assert [each["stateKey"] for each in rest["threads"]] == ["a"]
        assert "nextCursor" not in rest


@pytest.mark.req("S1-22")
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=101",
        "limit=1e9",
        "limit=1e1",
        "limit=10.0",
        "limit= 10",
        "limit=x",
        "limit=1&limit=2",
        "limit[]=1",
        "limit=99999999999999999999999",
        "offset=-1",
        "cursor=made-up",
        "colour=red",
        "q=",
        "q=a&cursor=b",
    ],
)
async def test_an_invalid_query_is_refused(client: Client, query: str) -> None:
    answer = await client.http.get(f"{THREADS}?{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("query", ['"', "NEAR(", "a OR", "col:", "*", "x') OR 1=1 --", "blue whale"])
async def test_search_words_are_taken_literally(client: Client, query: str) -> None:
    await client.ask("The blue whale", "key")
    answer = await client.http.get(THREADS, params={"q": query})
    assert answer.status_code == 200
    assert [hit["stateKey"] for hit in answer.json()["hits"]] == (["key"] if query == "blue whale" else [])


@pytest.mark.req("S1-23")
async def test_a_key_without_a_thread_has_an_empty_history(client: Client) -> None:
    answer = await client.http.get(f"{THREADS}/unknown")
    assert (answer.status_code, answer.json()) == (200, {"stateKey": "unknown", "messages": []})
    assert answer.headers["cache-control"] == "no-store"
    assert (await client.http.get(f"{THREADS}/not valid")).status_code == 400


@pytest.mark.req("S1-23", "S1-24")
async def test_deleting_twice_succeeds_and_the_key_can_be_used_again(client: Client) -> None:
    await client.ask("One", "key")
    for _ in range(2):
        deleted = await client.http.delete(f"{THREADS}/key")
        assert (deleted.status_code, deleted.json()) == (200, {"ok": True})
    assert await client.messages("key") == []
    assert (await client.http.get(THREADS)).json() == {"threads": []}
    await client.ask("Two", "key")
    assert [text for _, text in await client.messages("key")] == ["Two", "Hello, you."]


async def test_deleting_a_thread_ends_its_running_stream(client: Client, scripted_agent: ScriptedAgent) -> None:
    async with held(scripted_agent):
        asking = asyncio.create_task(client.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        await client.http.delete(f"{THREADS}/key")
        assert client.chunks(await asking)[-1] == {"type": "error", "errorText": "the thread was deleted"}
    assert await client.messages("key") == []


@pytest.mark.req("S1-30")
async def test_a_title_has_whole_characters_of_any_script(client: Client) -> None:
    family = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    await client.ask("Привет, 世界! " + family * 60, "key")
    title = (await client.http.get(f"{THREADS}/key")).json()["title"]
    assert title.startswith("Привет, 世界! " + family)
    assert title.endswith(family + "…")
    assert len(title) <= 100


@pytest.mark.req("S1-30")
async def test_a_title_is_changed_and_a_thread_archived(client: Client) -> None:
    await client.ask("Hi", "key")
    changed = await client.http.patch(f"{THREADS}/key", json={"title": "Mine", "metadata": {"pinned": True}})
    assert (changed.json()["title"], changed.json()["metadata"]) == ("Mine", {"pinned": True})
    await client.http.patch(f"{THREADS}/key", json={"archived": True})
    assert (await client.http.get(THREADS)).json()["threads"] == []
    archived = (await client.http.get(THREADS, params={"archived": "true"})).json()["threads"]
    assert [each["title"] for each in archived] == ["Mine"]


@pytest.mark.parametrize("body", [{"titel": "x"}, {"title": 1}, {"title": ""}, {"title": "a\u202eb"}, [], "x"])
async def test_an_invalid_change_changes_nothing(client: Client, body: Any) -> None:
    await client.ask("Hi", "key")
    before = (await client.http.get(f"{THREADS}/key")).json()
    answer = await client.http.patch(f"{THREADS}/key", json=body)
    assert answer.status_code == 400
    assert (await client.http.get(f"{THREADS}/key")).json() == before


async def test_a_branch_is_independent_of_its_source(client: Client) -> None:
    await client.ask("One", "key")
    await client.ask("Two", "key")
    made = await client.http.post(f"{THREADS}/key/branch", json={"at": 1, "title": "Fork", "stateKey": "fork"})
    assert (made.status_code, made.json()["stateKey"], made.json()["messageCount"]) == (201, "fork", 2)
    await client.ask("Three", "fork")
    assert [text for _, text in await client.messages("fork")][::2] == ["One", "Three"]
    assert [text for _, text in await client.messages("key")][::2] == ["One", "Two"]
    assert (await client.http.post(f"{THREADS}/key/branch")).json()["messageCount"] == 4
    for at in (99, -2, 2**53 + 1, 1.5, "unknown"):
        refused = await client.http.post(f"{THREADS}/key/branch", json={"at": at})
        assert refused.status_code in (400, 404), at
    taken = await client.http.post(f"{THREADS}/key/branch", json={"stateKey": "fork"})
    assert (taken.status_code, taken.json()["code"]) == (409, "duplicate_id")


@pytest.mark.req("S1-29")
async def test_an_undo_can_be_reverted_by_a_switch(client: Client) -> None:
    await client.ask("One", "key")
    undone = (await client.http.post(f"{THREADS}/key/undo")).json()
    assert undone["messageCount"] == 0
    first, second = (await client.http.get(f"{THREADS}/key/timelines")).json()["timelines"]
    assert (first["current"], second["current"]) == (False, True)
    await client.http.post(f"{THREADS}/key/switch", json={"timelineId": first["id"]})
    assert len(await client.messages("key")) == 2
    assert (await client.http.post(f"{THREADS}/key/switch", json={"timelineId": "unknown"})).status_code == 404
    assert (await client.http.post(f"{THREADS}/unknown/undo")).status_code == 404


async def test_a_saved_point_is_loaded_into_any_thread(client: Client) -> None:
    await client.ask("One", "key")
    saved = await client.http.put(f"{SAVES}/before lunch", json={"stateKey": "key"})
    assert (saved.json()["name"], saved.json()["seq"]) == ("before lunch", 1)
    await client.ask("Other", "other")
    await client.http.post(f"{THREADS}/other/load", json={"name": "before lunch"})
    assert [text for _, text in await client.messages("other")] == ["One", "Hello, you."]
    assert [each["name"] for each in (await client.http.get(SAVES)).json()["saves"]] == ["before lunch"]
    for was_there in (True, False):
        answer = await client.http.delete(f"{SAVES}/before lunch")
        assert answer.json() == {"ok": True, "forgotten": was_there}
    assert (await client.http.get(SAVES)).json() == {"saves": []}
    assert (await client.http.post(f"{THREADS}/other/load", json={"name": "before lunch"})).status_code == 404


@pytest.mark.parametrize("name", ["a%E2%80%8Bb", "a%E2%80%AEb", "%00", "x" * 101, "%20"])
async def test_a_name_with_invisible_characters_is_refused(client: Client, name: str) -> None:
    await client.ask("One", "key")
    answer = await client.http.put(f"{SAVES}/{name}", json={"stateKey": "key"})
    assert answer.status_code in (400, 413)
    assert (await client.http.get(SAVES)).json() == {"saves": []}


@pytest.mark.req("G-08")
async def test_exported_threads_can_be_imported_again_and_nothing_is_doubled(client: Client) -> None:
    await client.ask("One", "key")
    lines = (await client.http.get(f"{THREADS}/key/export")).content
    taken = await client.http.post(f"{THREADS}/import", content=lines, headers={"content-type": "application/x-ndjson"})
    assert taken.status_code == 201
    (known,) = taken.json()["threads"]
    assert known["stateKey"] == "key"
    assert len((await client.http.get(THREADS)).json()["threads"]) == 1
    assert len(await client.messages("key")) == 2
    assert (await client.http.get(f"{THREADS}/key/export")).content == lines
    assert "One" in (await client.http.get(f"{THREADS}/key/export", params={"format": "markdown"})).text
    assert len((await client.http.get(f"{THREADS}/key/export", params={"format": "json"})).json()["messages"]) == 2
    assert (await client.http.get(f"{THREADS}/key/export", params={"format": "xml"})).status_code == 400


async def test_an_import_with_a_bad_line_stores_nothing_and_names_the_line(client: Client) -> None:
    await client.ask("One", "key")
    lines = (await client.http.get(f"{THREADS}/key/export")).content.splitlines(keepends=True)
    for bad in (lines[:-1], [lines[0], b"{}\n", *lines[1:]], [b"\x00\n"], [b""]):
        answer = await client.http.post(
            f"{THREADS}/import", content=b"".join(bad), headers={"content-type": "application/jsonl"}
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_import")
    assert len((await client.http.get(THREADS)).json()["threads"]) == 1


ROUTES: list[tuple[str, str, Any]] = [
    ("PATCH", f"{THREADS}/key", {"title": "x"}),
    ("POST", f"{THREADS}/key/branch", {}),
    ("GET", f"{THREADS}/key/timelines", None),
    ("POST", f"{THREADS}/key/switch", {"timelineId": "x"}),
    ("POST", f"{THREADS}/key/undo", None),
    ("PUT", f"{SAVES}/name", {"stateKey": "key"}),
    ("POST", f"{THREADS}/key/load", {"name": "mine"}),
    ("GET", f"{THREADS}/key/export", None),
    ("POST", f"{CHAT}/key/stop", None),
    ("POST", CHAT, {"id": "key", "trigger": "regenerate-message"}),
]


@pytest.mark.req("S1-05", "S1-26", "SX-04")
@pytest.mark.parametrize("other_user", ["bob", "other_tenant"])
async def test_another_users_thread_is_not_found(people: dict[str, Client], other_user: str) -> None:
    alice, other = people["alice"], people[other_user]
    await alice.ask("Secret", "key")
    await alice.http.put(f"{SAVES}/mine", json={"stateKey": "key"})
    for method, path, body in ROUTES:
        foreign = await other.http.request(method, path, json=body)
        nowhere = json.loads(json.dumps(body).replace('"key"', '"nil"'))
        unknown = await other.http.request(method, path.replace("key", "nil"), json=nowhere)
        assert foreign.status_code == 404, (method, path)
        assert foreign.text == unknown.text.replace("nil", "key")
    assert (await other.http.get(THREADS)).json() == {"threads": []}
    assert (await other.http.get(THREADS, params={"q": "Secret"})).json() == {"hits": []}
    assert (await other.http.get(f"{THREADS}/key")).json() == {"stateKey": "key", "messages": []}
    assert (await other.http.get(SAVES)).json() == {"saves": []}
    await other.ask("Mine", "key")
    assert [text for _, text in await alice.messages("key")] == ["Secret", "Hello, you."]
    assert [text for _, text in await other.messages("key")] == ["Mine", "Hello, you."]


async def test_a_viewer_can_read_but_not_change(people: dict[str, Client]) -> None:
    await people["alice"].ask("One", "key")
    viewer = people["viewer"]
    assert len(await viewer.messages("key")) == 2
    writing = [(method, path, body) for method, path, body in ROUTES if method != "GET"]
    for method, path, body in [*writing, ("DELETE", f"{THREADS}/key", None), ("DELETE", f"{SAVES}/x", None)]:
        answer = await viewer.http.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "role_refused"), (method, path)
    assert (await viewer.post_chat("Two", "key")).status_code == 403
    assert len(await people["alice"].messages("key")) == 2

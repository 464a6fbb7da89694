"""Details of a thread for a page: head, turns, versions, prompts, places."""

from __future__ import annotations

import asyncio

import pytest

from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import held
from tests.service.running_service import THREADS, Client, message_text
from threadline.bootstrap import Threadline
from threadline.core.threads import Scope

ROUTES = ("turns", "seen", "lineage", "places")


async def test_a_head_is_returned_immediately_if_the_version_differs(client: Client) -> None:
    before = (await client.http.get(f"{THREADS}/key/head")).json()
    assert before == {"version": "none", "messageCount": 0}
    await client.ask("Hi", "key")
    after = (await client.http.get(f"{THREADS}/key/head", params={"seen": "none", "wait": 20})).json()
    assert (after["messageCount"], "turnId" in after) == (2, False)
    same = await client.http.get(f"{THREADS}/key/head", params={"seen": after["version"]})
    assert same.status_code == 204


async def test_a_waiting_request_returns_when_the_thread_changes(client: Client, scripted_agent: ScriptedAgent) -> None:
    await client.ask("Hi", "key")
    seen = (await client.http.get(f"{THREADS}/key/head")).json()["version"]
    waiting = asyncio.create_task(client.http.get(f"{THREADS}/key/head", params={"seen": seen, "wait": 20}))
    async with held(scripted_agent):
        asking = asyncio.create_task(client.ask("More", "key"))
        head = (await asyncio.wait_for(waiting, 15)).json()
    assert head["version"] != seen
    assert head["turnId"]
    await asking


@pytest.mark.parametrize("query", ["wait=-1", "wait=26", "wait=x", "colour=red"])
async def test_a_wait_that_is_too_long_is_refused(client: Client, query: str) -> None:
    assert (await client.http.get(f"{THREADS}/key/head?{query}")).status_code == 400


async def test_tail_reads_the_newest_messages(client: Client) -> None:
    for text in ("One", "Two", "Three"):
        await client.ask(text, "key")
    tail = (await client.http.get(f"{THREADS}/key", params={"tail": 2})).json()
    assert ([message_text(each) for each in tail["messages"]], tail["firstSeq"]) == (["Three", "Hello, you."], 4)
    assert len((await client.http.get(f"{THREADS}/key", params={"tail": 99})).json()["messages"]) == 6
    assert (await client.http.get(f"{THREADS}/key", params={"tail": 2, "first": 1})).status_code == 400
    assert (await client.http.get(f"{THREADS}/key", params={"tail": 0})).status_code == 400


async def test_turns_are_listed_with_surface_and_status(client: Client) -> None:
    await client.ask("One", "key")
    await client.http.post("/api/v1/agents/scripted/message", json={"content": "Two", "stateKey": "key"})
    turns = (await client.http.get(f"{THREADS}/key/turns")).json()["turns"]
    assert [(turn["surface"], turn["status"], turn["requestSeq"], turn["replySeq"]) for turn in turns] == [
        ("api", "executed", 2, 3),
        ("web", "executed", 0, 1),
    ]
    assert turns[0]["usage"] == {"inputTokens": 10, "outputTokens": 2, "cachedTokens": 0, "reasoningTokens": 0}


async def test_a_turns_prompt_can_be_read_also_on_an_old_timeline(client: Client) -> None:
    await client.http.post("/api/v1/agents/scripted/context", json={"context": "I live in Bern."})
    await client.ask("One", "key")
    await client.ask("Two", "key")
    first, second = reversed((await client.http.get(f"{THREADS}/key/turns")).json()["turns"])
    await client.http.post(f"{THREADS}/key/undo")
    seen = (await client.http.get(f"{THREADS}/key/seen", params={"turnId": second["id"]})).json()
    assert "I live in Bern." in seen["system"][0]
    assert [message_text(each) for each in seen["messages"]] == ["One", "Hello, you.", "Two"]
    assert (await client.http.get(f"{THREADS}/key/seen")).json()["id"] == second["id"]
    earlier = (await client.http.get(f"{THREADS}/key/seen", params={"turnId": first["id"]})).json()
    assert [message_text(each) for each in earlier["messages"]] == ["One"]
    assert earlier["tokens"] > 0


async def test_versions_distinguish_regenerated_answers_from_edited_questions(client: Client) -> None:
    await client.ask("One", "key")
    message_id = (await client.http.get(f"{THREADS}/key")).json()["messages"][0]["id"]
    again = {"id": "key", "messages": [], "trigger": "regenerate-message"}
    assert (await client.http.post("/api/v1/ai/chat", json=again)).status_code == 200
    await client.ask("Another", "key", messageId=message_id)
    await client.http.put("/api/v1/ai/saves/here", json={"stateKey": "key"})
    lineage = (await client.http.get(f"{THREADS}/key/lineage")).json()
    drawn = [(each["begins"]["text"], each.get("repeats", False), each["current"]) for each in lineage["timelines"]]
    assert drawn == [("One", False, False), ("One", True, False), ("Another", False, True)]
    assert [each["name"] for each in lineage["saves"]] == ["here"]


async def test_places_lists_the_threads_bindings(client: Client, threadline: Threadline) -> None:
    await client.ask("One", "key")
    thread = (await client.http.get(f"{THREADS}/key")).json()
    assert (await client.http.get(f"{THREADS}/key/places")).json() == {"places": []}
    await threadline.store.scoped(Scope()).bind("slack", "C1", thread["id"], label="#travel")
    (place,) = (await client.http.get(f"{THREADS}/key/places")).json()["places"]
    assert (place["surface"], place["place"], place["label"]) == ("slack", "C1", "#travel")


async def test_a_deleted_thread_is_restored_under_its_key_unless_it_is_used(client: Client) -> None:
    await client.ask("One", "key")
    body = {"id": (await client.http.get(f"{THREADS}/key")).json()["id"]}
    for _ in range(2):
        await client.http.delete(f"{THREADS}/key")
    assert (await client.http.post(f"{THREADS}/restore", json=body)).json()["stateKey"] == "key"
    assert len(await client.messages("key")) == 2
    await client.http.delete(f"{THREADS}/key")
    await client.ask("Another", "key")
    assert (await client.http.post(f"{THREADS}/restore", json=body)).status_code == 409


async def test_details_of_another_users_thread_are_not_found(people: dict[str, Client]) -> None:
    await people["alice"].ask("One", "key")
    thread = (await people["alice"].http.get(f"{THREADS}/key")).json()
    (turn,) = (await people["alice"].http.get(f"{THREADS}/key/turns")).json()["turns"]
    for name in ("bob", "other_tenant"):
        other = people[name].http
        assert [(await other.get(f"{THREADS}/key/{route}")).status_code for route in ROUTES] == [404] * len(ROUTES)
        assert (await other.get(f"{THREADS}/key/head")).json()["version"] == "none"
        await people[name].ask("Mine", "key")
        assert (await other.get(f"{THREADS}/key/seen", params={"turnId": turn["id"]})).status_code == 404
    await people["alice"].http.delete(f"{THREADS}/key")
    for name in ("bob", "viewer"):
        assert (await people[name].http.post(f"{THREADS}/restore", json={"id": thread["id"]})).status_code in (403, 404)

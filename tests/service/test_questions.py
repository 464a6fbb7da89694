"""The question that a client sends is the one that is answered: retries, regenerations, edits and stale histories."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import held
from tests.service.running_service import CHAT, THREADS, Client, streamed_text
from threadline.core.prompts import Prompt

UI = dict[str, Any]


def asking(text: str, id: str) -> UI:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


def reply(id: str) -> UI:
    return {"id": id, "role": "assistant", "parts": [{"type": "text", "text": "as the client has it"}]}


@pytest.fixture(autouse=True)
def echo(scripted_agent: ScriptedAgent) -> None:
    """Every answer names the question it answers."""

    class Lines(list[Any]):
        def __iter__(self) -> Any:
            return iter(["Answer to ", scripted_agent.prompt_texts()[-1][1]])

    scripted_agent.lines = Lines()


async def send(client: Client, *messages: UI, key: str | None = None, **more: Any) -> httpx2.Response:
    headers = {} if key is None else {"idempotency-key": key}
    return await client.http.post(CHAT, json={"id": "key", "messages": list(messages), **more}, headers=headers)


async def regenerate(client: Client, *messages: UI, **more: Any) -> httpx2.Response:
    return await send(client, *messages, trigger="regenerate-message", **more)


async def history(client: Client) -> list[UI]:
    found: list[UI] = (await client.http.get(f"{THREADS}/key")).json()["messages"]
    return found


async def two_turns(client: Client) -> list[UI]:
    await send(client, asking("One", "one"))
    await send(client, *(await history(client)), asking("Two", "two"))
    return await history(client)


async def texts(client: Client) -> list[str]:
    return [text for _, text in await client.messages("key")]


async def timelines(client: Client) -> int:
    return len((await client.http.get(f"{THREADS}/key/timelines")).json()["timelines"])


def seen(scripted_agent: ScriptedAgent) -> list[str]:
    return [text for _, text in scripted_agent.prompt_texts()]


@pytest.mark.req("S1-29")
@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_retry_of_a_message_that_never_arrived_is_a_new_message(client: Client, is_whole: bool) -> None:
    await send(client, asking("One", "one"))
    before = await history(client) if is_whole else []
    retried = await regenerate(client, *before, asking("Two", "two"))
    assert streamed_text(client.chunks(retried)) == "Answer to Two"
    assert await texts(client) == ["One", "Answer to One", "Two", "Answer to Two"]
    assert await timelines(client) == 1


@pytest.mark.req("S1-29")
async def test_a_retry_of_a_first_message_that_never_arrived_creates_the_thread(client: Client) -> None:
    assert (await regenerate(client, asking("One", "one"))).status_code == 200
    assert await texts(client) == ["One", "Answer to One"]


@pytest.mark.req("S1-25", "S1-29")
async def test_a_retry_that_is_sent_twice_with_a_key_is_one_turn(client: Client) -> None:
    await send(client, asking("One", "one"))
    sent = [*(await history(client)), asking("Two", "two")]
    first, second = [await regenerate(client, *sent, key="k1") for _ in range(2)]
    assert client.chunks(first) == client.chunks(second)
    assert await texts(client) == ["One", "Answer to One", "Two", "Answer to Two"]


@pytest.mark.req("S1-29")
async def test_a_regenerated_earlier_question_is_answered_again_in_its_place(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    stored = await two_turns(client)
    whole = await regenerate(client, *stored, messageId=stored[1]["id"])
    assert streamed_text(client.chunks(whole)) == "Answer to One"
    assert (await texts(client), seen(scripted_agent)) == (["One", "Answer to One"], ["One"])
    assert await timelines(client) == 2


@pytest.mark.req("S1-29")
async def test_an_edited_question_that_is_regenerated_is_answered_as_edited(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    """As chat templates edit: setMessages with the edited message, then regenerate."""
    stored = await two_turns(client)
    await regenerate(client, asking("Uno", "one"))
    assert (await texts(client), seen(scripted_agent)) == (["Uno", "Answer to Uno"], ["Uno"])
    timeline = (await client.http.get(f"{THREADS}/key/timelines")).json()["timelines"][0]["id"]
    await client.http.post(f"{THREADS}/key/switch", json={"timelineId": timeline})
    assert await history(client) == stored


@pytest.mark.req("S1-29")
async def test_an_edit_of_a_message_that_never_arrived_is_a_new_message(client: Client) -> None:
    await send(client, asking("One", "one"))
    before = await history(client)
    assert (await send(client, *before, asking("Two, corrected", "two"), messageId="two")).status_code == 200
    assert (await texts(client))[2:] == ["Two, corrected", "Answer to Two, corrected"]


@pytest.mark.req("S1-29")
@pytest.mark.parametrize("trigger", ["submit-message", "regenerate-message"])
async def test_a_history_without_the_last_question_is_refused_with_the_head(client: Client, trigger: str) -> None:
    stored = await two_turns(client)
    refused = await send(client, *stored[:2], asking("Three", "three"), trigger=trigger)
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["currentCount"]) == (409, "head_moved", 4)
    assert problem["detail"] == "thread has 4 messages, expected 2: read it again and retry"
    assert await history(client) == stored


@pytest.mark.req("S1-25")
@pytest.mark.parametrize("key", [None, "k1"])
async def test_a_repeated_message_is_the_same_turn_after_later_messages(client: Client, key: str | None) -> None:
    await send(client, asking("One", "one"))
    sent = [*(await history(client)), asking("Two", "two")]
    first = await send(client, *sent, key=key)
    await send(client, *(await history(client)), asking("Three", "three"))
    again = await send(client, *sent, key=key)
    assert client.chunks(again) == client.chunks(first)
    assert len(await history(client)) == 6


@pytest.mark.req("S1-29")
async def test_messages_that_the_user_removed_are_left_behind_on_request(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    stored = await two_turns(client)
    await send(client, *stored[:2], asking("Three", "three"), rewind=True)
    assert await texts(client) == ["One", "Answer to One", "Three", "Answer to Three"]
    assert seen(scripted_agent) == ["One", "Answer to One", "Three"]
    assert await timelines(client) == 2
    await send(client, asking("Four", "four"), rewind=True)
    assert await texts(client) == ["Four", "Answer to Four"]
    for wrong in ({"rewind": "yes"}, {"rewind": True, "message": "Five"}):
        assert (await send(client, asking("Five", "five"), **wrong)).status_code == 400


@pytest.mark.req("S1-29")
async def test_a_client_that_never_got_the_reply_may_ask_on(client: Client) -> None:
    await send(client, asking("One", "one"))
    assert (await send(client, asking("One", "one"), asking("Two", "two"))).status_code == 200
    assert await texts(client) == ["One", "Answer to One", "Two", "Answer to Two"]


@pytest.mark.req("S1-24", "S1-29")
async def test_a_local_greeting_and_a_deleted_thread_are_no_mismatch(client: Client) -> None:
    stored = await two_turns(client)
    assert (await send(client, reply("greeting"), asking("Three", "three"))).status_code == 200
    await client.http.delete(f"{THREADS}/key")
    assert (await send(client, *stored, asking("Again", "again"))).status_code == 200
    assert await texts(client) == ["Again", "Answer to Again"]


@pytest.mark.req("S1-25")
async def test_a_message_id_sent_twice_is_the_same_turn_or_a_conflict(client: Client) -> None:
    first = await send(client, asking("One", "one"))
    again = await send(client, asking("One", "one"))
    assert client.chunks(again) == client.chunks(first)
    other = await send(client, asking("Uno", "one"))
    assert (other.status_code, other.json()["code"]) == (409, "duplicate_id")
    assert await texts(client) == ["One", "Answer to One"]


@pytest.mark.req("S1-25", "S1-29")
@pytest.mark.parametrize("trigger", ["submit-message", "regenerate-message"])
async def test_a_question_sent_again_while_it_is_answered_joins_its_stream(
    client: Client, scripted_agent: ScriptedAgent, trigger: str
) -> None:
    async with held(scripted_agent) as gate:
        first = asyncio.create_task(send(client, asking("One", "one")))
        await scripted_agent.waiting.wait()
        second = asyncio.create_task(send(client, asking("One", "one"), trigger=trigger))
        await client.resume("key", gate.set)
        assert client.chunks(await first) == client.chunks(await second)
    assert len(scripted_agent.prompts) == 1
    assert await texts(client) == ["One", "Answer to One"]


def free_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


async def leave(client: Client, scripted_agent: ScriptedAgent, *messages: UI) -> str:
    """Sends a question and disconnects while it is answered, as `stop()` of the AI SDK does. Returns the reply's id."""
    async with client.http.stream("POST", CHAT, json={"id": "key", "messages": list(messages)}) as stream:
        await scripted_agent.waiting.wait()
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                (start,) = client.frames([line])
                return str(start["messageId"])
    raise AssertionError("no chunk")


@pytest.mark.req("C-04", "S1-15")
async def test_a_client_that_left_the_stream_asks_the_next_question(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent):
        left = await leave(client, scripted_agent, asking("One", "one"))
        scripted_agent.gate = free_gate()
        asked = await send(client, asking("One", "one"), reply(left), asking("Two", "two"))
    assert streamed_text(client.chunks(asked)) == "Answer to Two"
    stored = await history(client)
    assert [message["id"] for message in stored[:3]] == ["one", left, "two"]
    assert stored[1]["metadata"] == {"status": "stopped"}
    assert await texts(client) == ["One", "Answer to ", "Two", "Answer to Two"]


@pytest.mark.req("C-04")
async def test_a_client_that_left_before_the_first_chunk_asks_the_next_question(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent):
        await leave(client, scripted_agent, asking("One", "one"))
        scripted_agent.gate = free_gate()
        asked = await send(client, asking("One", "one"), asking("Two", "two"))
    assert streamed_text(client.chunks(asked)) == "Answer to Two"
    assert await texts(client) == ["One", "Answer to ", "Two", "Answer to Two"]


@pytest.mark.req("C-04", "S1-31")
async def test_an_answer_that_is_being_read_is_not_interrupted(client: Client, scripted_agent: ScriptedAgent) -> None:
    """Another tab shows the question and reads its answer, or says that it does not want to interrupt."""
    async with held(scripted_agent):
        left = await leave(client, scripted_agent, asking("One", "one"))
        async with client.http.stream("GET", f"{CHAT}/key/stream") as reading:
            assert reading.status_code == 200
            refused = [
                await send(client, asking("One", "one"), asking("Two", "two")),
                await send(client, asking("Two", "two")),
                await send(client, asking("One", "one"), reply(left), asking("Two", "two"), policy="reject"),
            ]
        assert [(each.status_code, each.json()["code"]) for each in refused] == [(409, "turn_running")] * 3
    assert (await client.http.post(f"{CHAT}/key/stop")).status_code == 200


@pytest.mark.req("C-04", "S1-29")
async def test_editing_the_question_that_is_being_answered_ends_its_turn(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent):
        await leave(client, scripted_agent, asking("One", "one"))
        scripted_agent.gate = free_gate()
        await regenerate(client, asking("Uno", "one"))
    assert await texts(client) == ["Uno", "Answer to Uno"]


@pytest.mark.req("S1-03")
@pytest.mark.parametrize(
    "message",
    [
        "Hello",
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "user", "parts": [{"type": "text", "text": "Hello"}]},
    ],
)
async def test_a_message_is_a_text_or_has_content_or_parts(client: Client, message: Any) -> None:
    assert (await client.http.post(CHAT, json={"id": "key", "message": message})).status_code == 200
    assert await texts(client) == ["Hello", "Answer to Hello"]


@pytest.mark.req("S1-03")
async def test_a_content_array_may_contain_files(client: Client, scripted_agent: ScriptedAgent) -> None:
    file = {"type": "file", "mediaType": "text/plain", "data": "data:text/plain;base64,SGk=", "filename": "hi.txt"}
    content = [{"type": "text", "text": "See"}, file]
    assert (await send(client, {"role": "user", "content": content})).status_code == 200
    assert (await history(client))[0]["parts"][1] == {
        "type": "file",
        "mediaType": "text/plain",
        "url": "data:text/plain;base64,SGk=",
        "filename": "hi.txt",
    }
    for wrong in ({**file, "data": "https://a.example/x"}, {**file, "data": 1}, {"type": "tool-call"}, "x"):
        refused = await send(client, {"role": "user", "content": [content[0], wrong]})
        assert refused.status_code == 400, wrong
    prompt: Prompt = scripted_agent.prompts[-1]
    assert len(prompt.messages) == 1


@pytest.mark.req("S1-02")
@pytest.mark.parametrize(
    "strange",
    [
        [{"id": f"m{n}", "role": "user" if n % 2 else "assistant"} for n in range(10_000)],
        [{"id": "a/b c"}, {"id": 7, "role": "user"}, {"role": None}, {}, None, 3, ["x"], {"id": "\ud7ff" * 200}],
        [{"id": "one' OR 1=1 --", "role": "user"}],
    ],
    ids=["ten thousand", "malformed", "unknown ids"],
)
async def test_a_strange_history_is_answered_or_refused_and_never_used(
    client: Client, scripted_agent: ScriptedAgent, strange: list[Any]
) -> None:
    assert (await send(client, *strange, asking("One", "one"))).status_code == 200
    assert seen(scripted_agent) == ["One"]
    for more in ({}, {"rewind": True}, {"trigger": "regenerate-message"}):
        assert (await send(client, *strange, asking("Two", "two"), **more)).status_code in (200, 409)
    assert {text for text in await texts(client) if "Answer" not in text} <= {"One", "Two"}


@pytest.mark.req("S1-03", "S1-29")
async def test_the_body_of_assistant_uis_data_stream_runtime_is_understood(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    def body(*messages: UI, **more: Any) -> UI:
        return {"messages": [*messages, {"role": "assistant", "content": []}], "tools": {}, "stateKey": "key", **more}

    def said(text: str, **more: Any) -> UI:
        return {"role": "user", "content": [{"type": "text", "text": text}], **more}

    one, two = said("One", unstable_id="u1"), said("Two", unstable_id="u2")
    told = {"role": "assistant", "content": [{"type": "text", "text": "…"}], "unstable_id": "local"}
    thread = {"threadId": "__DEFAULT_ID__"}
    await client.http.post(CHAT, json=body(one, parentId="u1", **thread))
    await client.http.post(CHAT, json=body(one, told, two, parentId="u2", **thread))
    assert await texts(client) == ["One", "Answer to One", "Two", "Answer to Two"]
    await client.http.post(CHAT, json=body(said("One"), told, said("Two"), parentId="u2", **thread))
    assert (await texts(client), await timelines(client)) == (["One", "Answer to One", "Two", "Answer to Two"], 2)
    edited = body(one, told, said("Zwei", unstable_id="u3"), parentId="u3", **thread)
    assert (await client.http.post(CHAT, json=edited)).json()["code"] == "head_moved"
    await client.http.post(CHAT, json={**edited, "rewind": True})
    assert await texts(client) == ["One", "Answer to One", "Zwei", "Answer to Zwei"]
    for keyless, status in (("__DEFAULT_ID__", 400), ("__LOCALID_a1", 200), ("unknown", 404)):
        alone = {**body(one, parentId="u1"), "stateKey": None, "threadId": keyless}
        answer = await client.http.post(CHAT, json=alone)
        assert answer.status_code == status
    assert (await client.http.get(f"{THREADS}/__LOCALID_a1")).json()["messageCount"] == 2

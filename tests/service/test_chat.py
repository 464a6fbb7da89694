"""Chat over HTTP: what is stored, what is streamed, and that a turn does not depend on its readers."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import held
from tests.service.crashed_turns import leave_a_dead_turn
from tests.service.running_service import CHAT, THREADS, Client, streamed_text
from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.errors import AgentFailed
from threadline.core.threads import Scope

ME = Scope("local", "local")


def kinds(chunks: list[dict[str, Any]]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


@pytest.mark.req("S1-01")
async def test_two_turns_store_four_messages_and_the_second_prompt_contains_the_first(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    assert streamed_text(await client.ask("One", "key")) == "Hello, you."
    await client.ask("Two", "key")
    roles = [role for role, _ in await client.messages("key")]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert [text for _, text in scripted_agent.prompt_texts()] == ["One", "Hello, you.", "Two"]


@pytest.mark.req("S1-04")
async def test_a_state_key_is_generated_or_echoed(client: Client) -> None:
    made = (await client.post_chat("Hi")).headers["x-state-key"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{21}", made)
    assert (await client.post_chat("Hi", "mine")).headers["x-state-key"] == "mine"
    assert (await client.post_chat("Hi", headers={"x-state-key": "header"})).headers["x-state-key"] == "header"
    differing = await client.post_chat("Hi", "mine", headers={"x-state-key": "header"})
    assert differing.status_code == 400


@pytest.mark.req("S1-04")
@pytest.mark.parametrize("key", ["a b", "é", "a/b", "x" * 129, "../etc", ""])
async def test_an_invalid_state_key_is_refused(client: Client, key: str) -> None:
    assert (await client.post_chat("Hi", key)).status_code == 400


@pytest.mark.req("S1-18", "S1-19")
async def test_the_stream_closes_text_before_a_tool_and_ends_with_the_finish_reason(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [
        "Let me see.",
        events.Status("looking"),
        events.ToolInputStart("c1", "look"),
        events.ToolCall("c1", "look", {"for": "it"}),
        events.ToolResult("c1", ["found"]),
        "Here.",
        events.Finish("length"),
    ]
    chunks = await client.ask("Find it", "key", headers={"x-ai-sdk": "6"})
    assert kinds(chunks) == [
        "start", "text-start", "text-delta", "data-status", "text-end", "tool-input-start", "tool-input-available",
        "tool-output-available", "text-start", "text-delta", "text-end", "finish",
    ]  # fmt: skip
    assert chunks[-1] == {"type": "finish", "finishReason": "length"}
    assert chunks[3]["transient"] is True
    stored = (await client.http.get(f"{THREADS}/key")).json()["messages"][1]
    assert stored["id"] == chunks[0]["messageId"]
    assert [part["type"] for part in stored["parts"]] == ["text", "tool-look", "text"]


@pytest.mark.req("S1-15", "S1-19")
async def test_a_failed_turn_streams_its_error_and_keeps_its_output(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = ["I begin", AgentFailed("The model is away.")]
    chunks = await client.ask("Hi", "key")
    assert kinds(chunks)[-2:] == ["text-end", "error"]
    assert chunks[-1]["errorText"] == "The model is away."
    stored = (await client.http.get(f"{THREADS}/key")).json()["messages"][1]
    assert stored["metadata"] == {"status": "dispatch_failed"}


@pytest.mark.req("S1-14")
async def test_a_dropped_connection_does_not_stop_the_turn(client: Client, scripted_agent: ScriptedAgent) -> None:
    async with held(scripted_agent) as gate:
        body = {"id": "key", "message": {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}}
        async with client.http.stream("POST", CHAT, json=body):
            await scripted_agent.waiting.wait()
        gate.set()
        await ended(client)
    assert await client.messages("key") == [("user", "Hi"), ("assistant", "Hello, you.")]


@pytest.mark.req("S1-25")
async def test_a_retry_with_the_same_key_returns_the_same_turn(client: Client) -> None:
    first = await client.post_chat("Hi", "key", headers={"idempotency-key": "k1"})
    again = await client.post_chat("Hi", "key", headers={"idempotency-key": "k1"})
    assert client.chunks(again) == client.chunks(first)
    assert len(await client.messages("key")) == 2
    other = await client.post_chat("Bye", "key", headers={"idempotency-key": "k1"})
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")


@pytest.mark.req("S1-25")
async def test_a_retry_while_the_turn_runs_joins_its_stream(client: Client, scripted_agent: ScriptedAgent) -> None:
    async with held(scripted_agent) as gate:
        keyed = {"idempotency-key": "k1"}
        first = asyncio.create_task(client.post_chat("Hi", "key", headers=keyed))
        await scripted_agent.waiting.wait()
        second = asyncio.create_task(client.post_chat("Hi", "key", headers=keyed))
        await heartbeat(client)
        gate.set()
        assert streamed_text(client.chunks(await first)) == streamed_text(client.chunks(await second)) == "Hello, you."
    assert len(scripted_agent.prompts) == 1


@pytest.mark.req("S1-31")
async def test_a_message_during_a_turn_is_refused_with_the_count_unless_a_policy_is_given(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent) as gate:
        first = asyncio.create_task(client.post_chat("One", "key"))
        await scripted_agent.waiting.wait()
        refused = await client.post_chat("Two", "key")
        assert (refused.status_code, refused.json()["code"]) == (409, "turn_running")
        assert refused.json()["currentCount"] == 1
        queued = asyncio.create_task(client.post_chat("Three", "key", policy="queue"))
        await heartbeat(client)
        gate.set()
        await asyncio.gather(first, queued)
    assert [text for _, text in await client.messages("key")] == ["One", "Three", "Hello, you.", "Hello, you."]


@pytest.mark.req("S1-26")
async def test_a_stream_is_resumed_from_its_first_chunk_and_continues_live(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent) as gate:
        first = asyncio.create_task(client.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        resumed = await client.resume("key", gate.set)
        assert resumed == client.chunks(await first)
    assert (await client.http.get(f"{CHAT}/key/stream")).status_code == 204


@pytest.mark.req("S1-26")
async def test_unknown_threads_and_those_of_others_have_nothing_to_resume(people: dict[str, Client]) -> None:
    await people["alice"].ask("Hi", "hers")
    seen = people["alice"].ids[-1]
    for key in ("hers", "unknown"):
        for headers in ({}, {"last-event-id": seen}):
            answer = await people["bob"].http.get(f"{CHAT}/{key}/stream", headers=headers)
            assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.req("S1-26")
async def test_last_event_id_returns_only_later_events(client: Client, scripted_agent: ScriptedAgent) -> None:
    scripted_agent.lines = ["one ", "two ", "three"]
    whole = await client.ask("Hi", "key")
    ids = list(client.ids)
    for position, seen in enumerate(ids):
        answer = await client.http.get(f"{CHAT}/key/stream", headers={"last-event-id": seen})
        rest = client.chunks(answer)
        assert client.ids == ids[position + 1 :]
        assert rest == whole[len(whole) - len(rest) :]
    at_the_end = await client.http.get(f"{CHAT}/key/stream", headers={"last-event-id": ids[-1]})
    assert kinds(client.chunks(at_the_end)) == ["finish"]


@pytest.mark.req("S1-26")
async def test_an_event_id_of_another_thread_is_not_found(client: Client) -> None:
    await client.ask("Hi", "key")
    theirs = client.ids[-1]
    await client.ask("Hi", "other")

    async def status(seen: str) -> int:
        return (await client.http.get(f"{CHAT}/other/stream", headers={"last-event-id": seen})).status_code

    assert await status(theirs) == 404
    assert await status("unknown:3") == 404
    assert await status("garbage!") == 400
    assert await status("9" * 10_000) == 431
    assert await status("999999") == 200


@pytest.mark.req("S1-27")
async def test_the_history_leaves_out_the_reply_of_a_running_turn(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    async with held(scripted_agent):
        asking = asyncio.create_task(client.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        read = (await client.http.get(f"{THREADS}/key")).json()
        assert ([message["role"] for message in read["messages"]], read["active"]) == (["user"], True)
    await asking


@pytest.mark.req("S1-28")
async def test_stop_ends_a_turn_and_keeps_its_output(client: Client, scripted_agent: ScriptedAgent) -> None:
    async with held(scripted_agent):
        asking = asyncio.create_task(client.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        assert (await client.http.post(f"{CHAT}/key/stop")).json() == {"ok": True, "stopped": 1}
        assert kinds(client.chunks(await asking))[-2:] == ["text-end", "abort"]
    assert await client.messages("key") == [("user", "Hi"), ("assistant", "Hello, ")]
    assert (await client.http.post(f"{CHAT}/key/stop")).json() == {"ok": True, "stopped": 0}
    assert (await client.http.post(f"{CHAT}/unknown/stop")).status_code == 404


async def test_one_turn_is_stopped_by_its_id_and_others_continue(client: Client, scripted_agent: ScriptedAgent) -> None:
    async with held(scripted_agent) as gate:
        asking = [asyncio.create_task(client.post_chat("Hi", "key"))]
        await scripted_agent.waiting.wait()
        asking.append(asyncio.create_task(client.post_chat("And?", "key", policy="queue")))
        while len(turns := (await client.http.get(f"{THREADS}/key/turns")).json()["turns"]) < 2:
            pass
        for turn_id, stopped in ((turns[0]["id"], 1), (turns[0]["id"], 0), ("unknown", 0)):
            answer = await client.http.post(f"{CHAT}/key/stop", json={"turnId": turn_id})
            assert answer.json() == {"ok": True, "stopped": stopped}
        for wrong in ({"turn": "x"}, {"turnId": ""}):
            assert (await client.http.post(f"{CHAT}/key/stop", json=wrong)).status_code == 400
        gate.set()
        first, second = [kinds(client.chunks(await each))[-1] for each in asking]
        assert (first, second) == ("finish", "abort")


@pytest.mark.req("S1-29")
async def test_regenerating_repeats_the_question_on_a_new_timeline(
    client: Client, scripted_agent: ScriptedAgent
) -> None:
    first = await client.ask("Hi", "key")
    before = (await client.http.get(f"{THREADS}/key")).json()
    scripted_agent.lines = ["Another answer."]
    again = await client.http.post(
        CHAT, json={"id": "key", "trigger": "regenerate-message", "messageId": first[0]["messageId"], "messages": []}
    )
    assert streamed_text(client.chunks(again)) == "Another answer."
    after = (await client.http.get(f"{THREADS}/key")).json()
    assert await client.messages("key") == [("user", "Hi"), ("assistant", "Another answer.")]
    assert after["messages"][0] == before["messages"][0]
    assert after["timelineId"] != before["timelineId"]
    await client.http.post(f"{THREADS}/key/switch", json={"timelineId": before["timelineId"]})
    assert (await client.http.get(f"{THREADS}/key")).json()["messages"] == before["messages"]


@pytest.mark.req("S1-29")
@pytest.mark.parametrize("named", [True, False])
async def test_a_reply_that_was_never_stored_can_be_regenerated(
    client: Client, scripted_agent: ScriptedAgent, named: bool
) -> None:
    scripted_agent.lines = [AgentFailed("away")]
    failed = await client.ask("Hi", "key")
    assert await client.messages("key") == [("user", "Hi")]
    scripted_agent.lines = ["Here I am."]
    name = {"messageId": failed[0]["messageId"]} if named else {}
    await client.http.post(CHAT, json={"id": "key", "trigger": "regenerate-message", **name})
    assert await client.messages("key") == [("user", "Hi"), ("assistant", "Here I am.")]


@pytest.mark.req("S1-29")
async def test_editing_a_message_replaces_everything_after_it(client: Client, scripted_agent: ScriptedAgent) -> None:
    await client.ask("One", "key")
    await client.ask("Two", "key")
    history = (await client.http.get(f"{THREADS}/key")).json()["messages"]
    edited = {"id": history[0]["id"], "role": "user", "parts": [{"type": "text", "text": "Uno"}]}
    body = {"id": "key", "trigger": "submit-message", "messageId": history[0]["id"], "messages": [edited]}
    assert (await client.http.post(CHAT, json=body)).status_code == 200
    assert await client.messages("key") == [("user", "Uno"), ("assistant", "Hello, you.")]
    assert scripted_agent.prompt_texts() == [("user", "Uno")]
    assert len((await client.http.get(f"{THREADS}/key/timelines")).json()["timelines"]) == 2


async def test_replies_and_unknown_messages_cannot_be_edited(client: Client) -> None:
    chunks = await client.ask("One", "key")
    before = await client.messages("key")
    for message_id, status in ((chunks[0]["messageId"], 400), ("unknown", 404)):
        answer = await client.post_chat("Forged", "key", messageId=message_id)
        assert answer.status_code == status
    assert await client.messages("key") == before
    assert len((await client.http.get(f"{THREADS}/key/timelines")).json()["timelines"]) == 1


async def test_an_idle_stream_sends_keep_alives(client: Client, scripted_agent: ScriptedAgent) -> None:
    async with held(scripted_agent):
        asking = asyncio.create_task(client.post_chat("Hi", "key"))
        await scripted_agent.waiting.wait()
        await heartbeat(client)
    assert "\n\n: keep-alive\n\n" in (await asking).text


async def test_an_unknown_agent_is_refused_before_anything_is_stored(client: Client) -> None:
    assert (await client.post_chat("Hi", "key", agentId="unknown")).status_code == 404
    assert await client.messages("key") == []


async def test_a_turn_of_a_crashed_process_is_ended_by_recovery(client: Client, threadline: Threadline) -> None:
    """The lease of a crashed worker has expired; recovery ends the turn."""
    await leave_a_dead_turn(threadline, ME, "key")
    answer = await client.http.get(f"{CHAT}/key/stream")
    assert answer.status_code in (200, 204)
    await ended(client)
    assert (await client.post_chat("Hi again", "key")).status_code == 200


async def ended(client: Client) -> None:
    """Waits until no turn is running: reads the stream to its end."""
    await client.http.get(f"{CHAT}/key/stream")


async def heartbeat(client: Client) -> None:
    """Waits until a stream opened now has received data, which is after those opened before it."""
    async with client.http.stream("GET", f"{CHAT}/key/stream") as stream:
        async for line in stream.aiter_lines():
            if line == ": keep-alive":
                return

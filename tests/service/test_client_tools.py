"""Client tools over HTTP: declared by a request or by settings, called on the stream, answered in the reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from typing import Any

import httpx2
import msgspec
import pytest

from tests.service.conftest import SERVICE
from tests.service.running_service import CHAT, THREADS, Client, serving, streamed_text
from tests.service.test_chat import kinds
from threadline.bootstrap import open as open_threadline
from threadline.settings import Settings

SCHEMA = {"type": "object", "properties": {"exact": {"type": "boolean"}}}
LOCATE = {"locate": {"description": "Where the user is.", "parameters": SCHEMA}}
MESSAGE = "/api/v1/agents/rehearsal/message"
ASKS = 'use locate with {"exact": true}'


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    settings = Settings(database=":memory:", service=SERVICE)
    async with open_threadline(settings=settings) as opened, serving(opened) as client:
        yield client


async def stored(client: Client, key: str = "key") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.http.get(f"{THREADS}/{key}")).json()["messages"]
    return found


async def ask(client: Client, text: str = ASKS, key: str = "key", **more: Any) -> httpx2.Response:
    body = {"id": key, "message": {"role": "user", "parts": [{"type": "text", "text": text}]}, "tools": LOCATE}
    return await client.http.post(CHAT, json=body | more)


async def waiting(client: Client, text: str = ASKS, key: str = "key") -> dict[str, Any]:
    """The reply with its open call, as the client has it."""
    assert (await ask(client, text, key)).status_code == 200
    return (await stored(client, key))[-1]


def tool_of(message: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = [part for part in message["parts"] if part["type"] == "tool-locate"]
    return found[0]


def answered(reply: dict[str, Any], output: Any = "Bern", **changes: Any) -> dict[str, Any]:
    changed = deepcopy(reply)
    tool_of(changed).update({"state": "output-available", "output": output} | changes)
    return changed


async def respond(client: Client, reply: dict[str, Any], key: str = "key", **more: Any) -> httpx2.Response:
    body = {"id": key, "messages": [reply], "trigger": "submit-message", "messageId": reply["id"]}
    return await client.http.post(CHAT, json=body, **more)


@pytest.mark.req("C-01")
async def test_the_turn_ends_with_the_call_and_continues_with_the_output(client: Client) -> None:
    chunks = client.chunks(await ask(client))
    assert kinds(chunks)[-3:] == ["tool-input-available", "finish-step", "finish"]
    reply = (await stored(client))[-1]
    assert tool_of(reply)["state"] == "input-available"
    chunks = client.chunks(await respond(client, answered(reply)))
    assert chunks[0] == {"type": "start", "messageId": reply["id"]}
    assert streamed_text(chunks) == "The tool locate answered: Bern."
    assert "tool-input-available" not in kinds(chunks)
    whole = (await stored(client))[-1]
    assert (whole["id"], tool_of(whole)["output"]) == (reply["id"], "Bern")


@pytest.mark.req("C-01")
async def test_an_output_sent_again_is_the_same_turn_and_another_is_refused(client: Client) -> None:
    reply = await waiting(client)
    first, *others = await asyncio.gather(*(respond(client, answered(reply)) for _ in range(4)))
    assert {each.text for each in others} == {first.text}
    later = await respond(client, answered(reply), headers={"idempotency-key": "another"})
    assert later.text == first.text
    refused = await respond(client, answered(reply, "Basel"))
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    turns = (await client.http.get(f"{THREADS}/key/turns")).json()
    assert len(turns.get("turns", turns)) == 2


def _other_call(reply: dict[str, Any]) -> dict[str, Any]:
    changed = answered(reply)
    changed["parts"].append(tool_of(changed) | {"toolCallId": "made-up"})
    return changed


FORGED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another name": lambda reply: answered(reply, type="tool-other"),
    "another input": lambda reply: answered(reply, input={"exact": False}),
    "no input": lambda reply: answered(reply, input=None),
    "an unknown call": lambda reply: answered(reply, toolCallId="made-up"),
    "one call more": _other_call,
    "a decision": lambda reply: answered(reply, state="approval-responded", approval={"id": "a", "approved": True}),
    "another reply": lambda reply: answered(reply) | {"id": "01m7jtwtv9001fm6cbxzra8ffg-reply"},
    "no reply": lambda reply: answered(reply) | {"id": "made-up"},
    "too large": lambda reply: answered(reply, "x" * 300_000),
    "too deep": lambda reply: answered(reply, _nested(300)),
}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.req("C-01")
async def test_outputs_that_do_not_fit_are_refused_and_store_nothing(client: Client) -> None:
    reply = await waiting(client)
    before = await stored(client)
    for name, forge in FORGED.items():
        refused = await respond(client, forge(reply))
        assert 400 <= refused.status_code < 500, (name, refused.text)
        assert refused.json()["detail"], name
    two_megabytes = await respond(client, answered(reply, "x" * 2_000_000))
    assert two_megabytes.status_code == 413
    assert await stored(client) == before
    assert "Bern" in streamed_text(client.chunks(await respond(client, answered(reply))))


@pytest.mark.req("C-01")
async def test_results_of_server_tools_cannot_be_changed(client: Client) -> None:
    await ask(client, "calculate 1+1")
    reply = (await stored(client))[-1]
    (call,) = [part for part in reply["parts"] if part["type"] == "tool-calculate"]
    call["output"] = "3"
    refused = await respond(client, reply)
    assert (refused.status_code, "differs" in refused.json()["detail"]) == (400, True)
    call["output"] = "2"
    assert (await respond(client, reply)).status_code == 409


@pytest.mark.req("C-01")
async def test_an_output_for_another_timeline_or_thread_is_refused(client: Client) -> None:
    reply = await waiting(client)
    await waiting(client, key="other")
    assert (await respond(client, answered(reply), "other")).status_code == 404
    await ask(client, "Never mind.")
    assert (await respond(client, answered(reply))).status_code == 409
    body = {"id": "key", "trigger": "regenerate-message", "messageId": reply["id"]}
    assert (await client.http.post(CHAT, json=body)).status_code == 200
    gone = await respond(client, answered(reply))
    assert gone.status_code in (404, 409)


@pytest.mark.parametrize(
    "tools",
    [
        [],
        {"a b": LOCATE["locate"]},
        {"a": 5},
        {"a": {"parameters": {"type": "array"}}},
        {"a": {"parameters": {"type": "object", "x": "y" * 20_000}}},
        {f"t{number}": LOCATE["locate"] for number in range(33)},
    ],
)
@pytest.mark.req("C-01")
async def test_declarations_that_no_model_can_be_offered_are_refused(client: Client, tools: Any) -> None:
    refused = await ask(client, clientTools=tools)
    assert refused.status_code in (400, 413), refused.text
    assert await stored(client) == []


async def test_a_value_under_tools_that_is_the_applications_own_is_ignored(client: Client) -> None:
    assert (await ask(client, "Hello", tools=["web"])).status_code == 200


@pytest.mark.req("C-01")
async def test_an_agent_offers_client_tools_by_its_settings_and_outputs_are_masked() -> None:
    declared = [{"name": "locate", "description": "Where the user is.", "schema": SCHEMA}]
    agents = {"guide": {"provider": "rehearsal", "settings": {"client_tools": declared}}}
    wanted = {"database": ":memory:", "agent": "guide", "agents": agents}
    settings = msgspec.structs.replace(msgspec.convert(wanted, Settings), service=SERVICE)
    async with open_threadline(settings=settings) as opened, serving(opened) as client:
        reply = await waiting(client)
        secret = "sk-proj-" + "a1B2" * 12
        answer = await respond(client, answered(reply, {"key": secret}))
        assert answer.status_code == 200
        assert secret not in answer.text + str(await stored(client))


@pytest.mark.req("C-01")
async def test_a_message_without_a_stream_is_202_and_its_reply_continues_with_the_output(client: Client) -> None:
    body = {"content": ASKS, "stateKey": "key", "clientTools": LOCATE}
    answers = [await client.http.post(MESSAGE, json=body, headers={"idempotency-key": "once"}) for _ in range(2)]
    first, again = ((answer.status_code, answer.json()) for answer in answers)
    assert first == again
    assert (first[0], first[1]["status"]) == (202, "awaiting_output")
    assert (tool_of(first[1])["state"], tool_of(first[1])["input"]) == ("input-available", {"exact": True})
    (_, reply) = await stored(client)
    assert reply["id"] == first[1]["id"]
    chunks = client.chunks(await respond(client, answered(reply)))
    assert streamed_text(chunks) == "The tool locate answered: Bern."
    (_, whole) = await stored(client)
    assert (whole["id"], tool_of(whole)["output"]) == (reply["id"], "Bern")
    # The next message declares no tools, so the model is offered none.
    later = await client.http.post(MESSAGE, json={"content": ASKS, "stateKey": "key"})
    assert (later.status_code, "status" in later.json()) == (200, False)


@pytest.mark.req("C-01")
async def test_client_tools_without_a_thread_or_of_the_wrong_shape_are_refused(client: Client) -> None:
    for wrong in ({"clientTools": LOCATE}, {"clientTools": [], "stateKey": "key"}, {"clientTools": [1]}):
        refused = await client.http.post(MESSAGE, json={"content": ASKS, **wrong})
        assert (refused.status_code, "clientTools" in refused.json()["detail"]) == (400, True)
    assert await stored(client) == []


def as_results(reply: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What assistant-ui's data stream runtime sends: ids of its own, calls and results as providers write them."""
    call = {"type": "tool-call", "toolCallId": tool_of(reply)["toolCallId"], "toolName": "locate"}
    result = {**call, "type": "tool-result", "output": {"type": "json", "value": "Bern"}} | changes
    messages = [
        {"role": "user", "content": [{"type": "text", "text": ASKS}], "unstable_id": "q"},
        {"role": "assistant", "content": [call | {"input": {"exact": True}}], "unstable_id": "a"},
        {"role": "tool", "content": [result]},
    ]
    return {"stateKey": "key", "threadId": "DEFAULT_THREAD_ID", "parentId": "q", "messages": messages}


@pytest.mark.req("C-01")
async def test_results_in_the_format_of_assistant_ui_continue_the_reply(client: Client) -> None:
    reply = await waiting(client)
    for wrong in ({"toolCallId": "made-up"}, {"toolName": "other"}, {"output": "Bern"}, {"toolCallId": 5}):
        refused = await client.http.post(CHAT, json=as_results(reply, **wrong))
        assert refused.status_code == 400, refused.text
    assert (await stored(client))[-1] == reply
    chunks = client.chunks(await client.http.post(CHAT, json=as_results(reply)))
    assert chunks[0] == {"type": "start", "messageId": reply["id"]}
    assert streamed_text(chunks) == "The tool locate answered: Bern."


@pytest.mark.req("C-01")
async def test_a_failure_in_the_format_of_assistant_ui_is_told_to_the_model(client: Client) -> None:
    body = as_results(await waiting(client), output={"type": "error-json", "value": "denied"})
    chunks = client.chunks(await client.http.post(CHAT, json=body))
    assert streamed_text(chunks) == "The tool locate gave no result: denied."

"""Runs in the environment of the frameworks: sessions of OpenAI's Agents SDK, on the database that
FRAMEWORK_TEST_DATABASE names, with the SDK's own `SQLiteSession` as oracle."""

from __future__ import annotations

import asyncio
import json
import os
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent, Runner, SQLiteSession, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import threadline
from threadline.adapters.openai_agents import ThreadlineSession
from threadline.core.hidden_parts import HiddenPart
from threadline.core.parts import ToolPart

DATABASE = os.environ["FRAMEWORK_TEST_DATABASE"]
SECRET = "sk-proj-" + "Ab3dE5fG7hJ9kL1m" * 3

ITEMS: list[Any] = [
    {"role": "user", "content": f"My key is {SECRET}"},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "And a picture"}, {"type": "input_image", "file_id": "f"}],
    },
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "Eqg" * 400},
    {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "look", "arguments": f'{{"token": "{SECRET}"}}'},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "found"}]},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Found.", "annotations": [], "logprobs": []}],
    },
    {"role": "system", "content": "half a character \ud83d and NUL \x00 and \U0001f600"},
    {"type": "item_from_the_future", "value": [1.5, 10**30, None, True], "password": "hunter2"},
    {"role": "user", "content": ""},
    {"neither": "role", "nor": "type"},
    {"type": "function_call_output", "call_id": "of nothing", "output": "x" * 2_000_000},
]


@pytest.fixture
async def gateway() -> AsyncIterator[threadline.Gateway]:
    async with threadline.open(DATABASE) as tl:
        yield tl.as_user(uuid.uuid4().hex)


async def test_items_are_read_back_equal_whatever_they_are(gateway: threadline.Gateway) -> None:
    for start in range(len(ITEMS)):
        session = ThreadlineSession(f"equal/{start}", gateway)
        await session.add_items(ITEMS[:start])
        await session.add_items(ITEMS[start:])
        again = ThreadlineSession(f"equal/{start}", gateway)
        assert await again.get_items() == ITEMS
        assert [await again.get_items(most) for most in (1, 3, 100)] == [ITEMS[-1:], ITEMS[-3:], ITEMS]
        assert [await again.pop_item() for _ in range(len(ITEMS) + 1)] == [*reversed(ITEMS), None]
        assert await session.get_items() == []


async def test_any_order_of_calls_gives_what_the_sdks_own_session_gives(gateway: threadline.Gateway) -> None:
    for seed in range(12):
        chance, own = random.Random(seed), SQLiteSession("s")
        for _ in range(25):
            # Each call is made by another object: nothing may be known only to one.
            here = ThreadlineSession(f"seed {seed}", gateway)
            match chance.choice(
                ["add", "add", "add", "get", "pop", "pop", "clear" if chance.random() < 0.2 else "add"]
            ):
                case "add":
                    items = [json.loads(json.dumps(item)) for item in chance.sample(ITEMS[:10], chance.randint(0, 4))]
                    await own.add_items(items)
                    await here.add_items(items)
                case "pop":
                    assert await here.pop_item() == await own.pop_item()
                case "clear":
                    await own.clear_session()
                    await here.clear_session()
            limit = chance.choice([None, 0, 1, 2, 5])
            assert await here.get_items(limit) == await own.get_items(limit)
        own.close()


async def test_a_call_and_its_output_are_one_tool_call_of_the_thread(gateway: threadline.Gateway) -> None:
    session = ThreadlineSession("trip", gateway)
    await session.add_items(ITEMS[:6])
    thread = await gateway.thread("trip")
    messages = await thread.messages()
    assert [message.role for message in messages] == ["user", "user", "assistant"]
    (call,) = [part for part in messages[2].parts if isinstance(part, ToolPart)]
    assert (call.name, call.state) == ("look", "output-available")
    assert messages[2].text == "Found."
    assert SECRET.encode() not in b"".join(message.parts_json for message in messages)
    assert await gateway.search("picture")


async def test_an_output_that_is_added_later_names_its_call(gateway: threadline.Gateway) -> None:
    await ThreadlineSession("late", gateway).add_items(ITEMS[3:4])
    await ThreadlineSession("late", gateway).add_items(ITEMS[4:5])
    thread = await gateway.thread("late")
    (call,) = (await thread.messages())[-1].parts
    assert isinstance(call, ToolPart)
    assert (call.name, call.call_id, call.is_answered) == ("look", "c1", True)


async def test_what_others_add_to_the_thread_is_in_the_session(gateway: threadline.Gateway) -> None:
    session = ThreadlineSession("shared", gateway)
    await session.add_items(ITEMS[:1])
    thread = await gateway.thread("shared")
    await thread.append(threadline.assistant([threadline.tool_part("look", "c9", {"q": 1}, output="found")]), "Thanks")
    assert await session.get_items() == [
        ITEMS[0],
        {"type": "function_call", "call_id": "c9", "name": "look", "arguments": '{"q":1}'},
        {"type": "function_call_output", "call_id": "c9", "output": "found"},
        {"role": "user", "content": "Thanks"},
    ]
    await thread.undo()
    assert len(await session.get_items()) == 3
    # A session that is named by the thread's id is the same one.
    await ThreadlineSession(thread.id, gateway).pop_item()
    assert len(await session.get_items()) == 2


async def test_a_deleted_part_is_in_no_item() -> None:
    user = uuid.uuid4().hex
    async with threadline.open(DATABASE) as tl:
        gateway = tl.as_user(user)
        session = ThreadlineSession("deleted", gateway)
        await session.add_items([ITEMS[0], *ITEMS[3:6]])
        thread = await gateway.thread("deleted")
        (call, _) = (await thread.messages())[1].parts
        assert isinstance(call, ToolPart)
        store = tl.store.scoped(threadline.Scope(user_id=user))
        await store.hide_parts(thread.id, [HiddenPart(thread.info.timeline_id, 1, 0)])
        for each in (session, ThreadlineSession("deleted", gateway)):
            assert await each.get_items() == [ITEMS[0], {"role": "assistant", "content": "Found."}]


async def test_two_processes_lose_nothing_and_pop_no_item_twice() -> None:
    user, key = uuid.uuid4().hex, "race"
    async with threadline.open(DATABASE) as first, threadline.open(DATABASE) as second:
        sessions = [ThreadlineSession(key, tl.as_user(user)) for tl in (first, second)]

        async def work(number: int, session: ThreadlineSession) -> list[Any]:
            popped = []
            for count in range(15):
                await session.add_items([{"role": "user", "content": f"{number}/{count}"}])
                if count % 3 == 0:
                    popped.append(await session.pop_item())
            return popped

        results = await asyncio.gather(*(work(number, session) for number, session in enumerate(sessions)))
        popped = [item["content"] for result in results for item in result]
        left = [item["content"] for item in await sessions[0].get_items()]
    assert len(set(popped)) == len(popped) == 10
    assert sorted(popped + left) == sorted(f"{number}/{count}" for number in range(2) for count in range(15))


async def test_compaction_replaces_the_end_only_if_it_is_still_the_end(gateway: threadline.Gateway) -> None:
    session = ThreadlineSession("compact", gateway)
    await session.add_items(ITEMS[:6])
    snapshot: Any = await session._get_compaction_snapshot(4)  # noqa: SLF001 - the hook that the SDK calls
    assert (snapshot.items, snapshot.complete) == (ITEMS[2:6], False)
    summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": "abc"}
    assert await snapshot.replace_suffix(1, [summary])
    assert await session.get_items() == [*ITEMS[:3], summary]
    assert not await snapshot.replace_suffix(1, [summary])
    late: Any = await session._get_compaction_snapshot(100)  # noqa: SLF001 - as above
    assert late.complete
    await session.add_items(ITEMS[8:9])
    assert not await late.replace_suffix(0, [])
    assert await session.get_items() == [*ITEMS[:3], summary, ITEMS[8]]
    assert len(await (await gateway.thread("compact")).timelines()) == 2


def test_a_runner_without_an_event_loop_continues_its_session() -> None:
    @function_tool
    def look(token: str) -> str:
        return f"found {token}"

    with threadline.open_sync(DATABASE) as tl:
        gateway = tl.as_user(uuid.uuid4().hex)
        for number in range(2):
            call = function_call("look", {"token": SECRET}, call_id=f"c{number}")
            model = ScriptedModel([[call], [assistant_message(f"Answer {number}")]])
            agent = Agent(name="helper", model=model, tools=[look])
            result = Runner.run_sync(agent, f"Question {number}", session=ThreadlineSession("sync", gateway))
            assert result.final_output == f"Answer {number}"
        messages = gateway.thread("sync").messages()
    assert [message.text for message in messages if message.text] == [
        "Question 0",
        "Answer 0",
        "Question 1",
        "Answer 1",
    ]
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
    assert [call.state for call in calls] == ["output-available"] * 2

"""OpenAI's conversations, items and deletion, driven by the official `openai` client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.scripted_agent import ScriptedAgent
from tests.service.conftest import authenticate_by_header
from tests.service.running_service import Client, serving
from tests.service.test_openai_api import PIXEL, WEATHER, sdk, threadline
from threadline.bootstrap import Threadline
from threadline.core.events import ToolCall

pytestmark = pytest.mark.req("G-04")
__all__ = ["threadline"]


@pytest.fixture
async def api(client: Client) -> AsyncIterator[openai.AsyncOpenAI]:
    async with sdk(client) as made:
        yield made


def said(items: Any) -> list[tuple[str, str]]:
    """Role or type, and text or output, of each item."""
    found = []
    for item in items:
        data = item if isinstance(item, dict) else item.to_dict()
        content = data.get("content") or [{"text": data.get("output") or data.get("name")}]
        found.append((data.get("role") or data["type"], content[0].get("text")))
    return found


def output(call_id: str, text: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


async def test_a_conversation_is_created_changed_and_deleted(client: Client, api: openai.AsyncOpenAI) -> None:
    made = await api.conversations.create(items=[user("Hello")], metadata={"topic": "travel"})
    assert made.id.startswith("conv_")
    assert await api.conversations.retrieve(made.id) == made
    changed = await api.conversations.update(made.id, metadata={"topic": "food"})
    assert changed.metadata == {"topic": "food"}
    thread = (await client.http.get(f"/api/v1/ai/threads/{made.id.removeprefix('conv_')}")).json()
    assert thread["metadata"] == {"topic": "food"}
    gone = await api.conversations.delete(made.id)
    assert (gone.id, gone.deleted) == (made.id, True)
    with pytest.raises(openai.NotFoundError):
        await api.conversations.retrieve(made.id)


async def test_metadata_that_is_not_text_is_kept(client: Client, api: openai.AsyncOpenAI) -> None:
    await client.ask("Hi", "lisbon")
    await client.http.patch("/api/v1/ai/threads/lisbon", json={"metadata": {"tags": ["a"], "topic": "x"}})
    found = await api.conversations.retrieve("conv_lisbon")
    assert found.metadata == {"topic": "x"}
    await api.conversations.update(found.id, metadata={"color": "red"})
    thread = (await client.http.get("/api/v1/ai/threads/lisbon")).json()
    assert thread["metadata"] == {"tags": ["a"], "color": "red"}


async def test_items_are_listed_in_pages_in_both_orders(client: Client, api: openai.AsyncOpenAI) -> None:
    made = await api.conversations.create(items=[user(f"m{n}") for n in range(7)])
    newest = [text for _, text in said([item async for item in api.conversations.items.list(made.id, limit=3)])]
    assert newest == [f"m{n}" for n in reversed(range(7))]
    first = await api.conversations.items.list(made.id, limit=3, order="asc", include=["message.output_text.logprobs"])
    assert (said(first.data), first.has_more) == ([("user", f"m{n}") for n in range(3)], True)
    rest = await api.conversations.items.list(made.id, limit=9, order="asc", after=str(first.last_id))
    assert (said(rest.data), rest.has_more) == ([("user", f"m{n}") for n in range(3, 7)], False)
    with pytest.raises(openai.BadRequestError) as unknown:
        await api.conversations.items.list(made.id, after="msg_unknown_0")
    assert unknown.value.param == "after"


async def test_items_are_added_read_and_deleted_one_by_one(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    made = await api.conversations.create()
    call: Any = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Porto"}'}
    image: Any = {"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}
    added = await api.conversations.items.create(made.id, items=[user("Rain?"), call, output("c1", "rain"), image])
    assert [item.type for item in added.data] == ["message", "function_call", "function_call_output", "message"]
    for item in added.data:
        assert await api.conversations.items.retrieve(item.id, conversation_id=made.id) == item  # type: ignore[arg-type]  # every item has an id
    left = await api.conversations.items.delete(added.data[1].id, conversation_id=made.id)  # type: ignore[arg-type]  # as above
    assert left.id == made.id
    items = [item.type async for item in api.conversations.items.list(made.id, order="asc")]
    assert items == ["message", "message"]
    with pytest.raises(openai.NotFoundError):
        await api.conversations.items.retrieve(added.data[1].id, conversation_id=made.id)  # type: ignore[arg-type]  # as above
    await api.responses.create(model="scripted", input="And?", conversation={"id": made.id})
    assert scripted_agent.prompt_texts()[0] == ("user", "Rain?")
    assert not any("rain" in text for _, text in scripted_agent.prompt_texts())


async def test_a_deleted_response_is_in_no_list_and_no_prompt(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    one = await api.responses.create(model="scripted", input="My code is 1234")
    two = await api.responses.create(model="scripted", input="Two", previous_response_id=one.id)
    await api.responses.delete(one.id)
    for read in (api.responses.retrieve, api.responses.cancel, api.responses.delete, api.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            await read(one.id)
    with pytest.raises(openai.NotFoundError):
        await api.responses.create(model="scripted", input="And?", previous_response_id=one.id)
    assert two.conversation is not None
    three = await api.responses.create(model="scripted", input="Three", previous_response_id=two.id)
    assert [text for _, text in scripted_agent.prompt_texts()] == ["Two", "Hello, you.", "Three"]
    items = [item async for item in api.conversations.items.list(two.conversation.id, order="asc")]
    assert [text for _, text in said(items)] == ["Two", "Hello, you.", "Three", "Hello, you."]
    exported = await client.http.get(f"/api/v1/ai/threads/{two.conversation.id.removeprefix('conv_')}/export")
    assert "1234" not in exported.text
    older = await api.responses.create(model="scripted", input="Again", previous_response_id=two.id)
    assert older.conversation != three.conversation
    assert [text for _, text in scripted_agent.prompt_texts()] == ["Two", "Hello, you.", "Again"]


async def test_a_deleted_response_takes_only_its_part_of_a_reply(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = ["Let me see.", ToolCall("c1", "weather", {"city": "Porto"})]
    asked = await api.responses.create(model="scripted", input="Rain?", tools=[WEATHER])
    scripted_agent.lines = ["It rains."]
    told = await api.responses.create(model="scripted", input=[output("c1", "rain")], previous_response_id=asked.id)
    assert said((await api.responses.input_items.list(told.id)).data) == [("function_call_output", "rain")]
    await api.responses.delete(asked.id)
    assert (await api.responses.retrieve(told.id)).output_text == "It rains."
    assert told.conversation is not None
    items = [item async for item in api.conversations.items.list(told.conversation.id)]
    assert said(items) == [("assistant", "It rains.")]


async def test_input_items_are_all_items_of_the_request(client: Client, api: openai.AsyncOpenAI) -> None:
    earlier = [user("One"), {"role": "assistant", "content": "1"}]
    made = await api.responses.create(model="scripted", input=[*earlier, user("Two")])
    newest = await api.responses.input_items.list(made.id, limit=2)
    assert (said(newest.data), newest.has_more) == ([("user", "Two"), ("assistant", "1")], True)
    rest = await api.responses.input_items.list(made.id, after=str(newest.data[-1].to_dict()["id"]))
    assert said(rest.data) == [("user", "One")]


async def test_outputs_can_come_with_messages(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [ToolCall("c1", "weather", {"city": "Porto"})]
    asked = await api.responses.create(model="scripted", input="Rain?", tools=[WEATHER])
    scripted_agent.lines = ["Take an umbrella."]
    both = [output("c1", "rain"), user("What should I take?")]
    told = await api.responses.create(model="scripted", input=both, previous_response_id=asked.id)
    assert told.output_text == "Take an umbrella."
    assert told.conversation == asked.conversation
    (question, reply, last) = scripted_agent.prompts[-1].messages
    assert [part.output_value() for part in reply.parts if part.__class__.__name__ == "ToolPart"] == ["rain"]  # type: ignore[union-attr]  # as the name says
    assert said((await api.responses.input_items.list(told.id, order="asc")).data) == [
        ("function_call_output", "rain"),
        ("user", "What should I take?"),
    ]
    again = await api.responses.create(model="scripted", input=both, previous_response_id=asked.id)
    assert again.conversation != asked.conversation
    with pytest.raises(openai.BadRequestError):
        await api.responses.create(
            model="scripted", input=[output("c9", "rain"), user("So?")], previous_response_id=asked.id
        )
    assert (question.role, last.role) == ("user", "user")


async def test_a_conversation_that_is_sent_back_continues_where_it_was(
    client: Client, api: openai.AsyncOpenAI, scripted_agent: ScriptedAgent
) -> None:
    scripted_agent.lines = [ToolCall("c1", "weather", {"city": "Porto"})]
    history: list[Any] = [user("Rain?")]
    one = await api.responses.create(model="scripted", input=history, tools=[WEATHER])
    history += [{"type": "item_reference", "id": one.output[0].id}, output("c1", "rain")]
    scripted_agent.lines = ["It rains."]
    two = await api.responses.create(model="scripted", input=history, tools=[WEATHER])
    assert (two.output_text, two.conversation) == ("It rains.", one.conversation)
    history += [item.to_dict() for item in two.output]
    three = await api.responses.create(model="scripted", input=[*history, user("And now?")], tools=[WEATHER])
    assert three.conversation == one.conversation
    history[0] = user("Snow?")
    other = await api.responses.create(model="scripted", input=[*history, user("And now?")], tools=[WEATHER])
    assert other.conversation != one.conversation
    assert scripted_agent.prompt_texts()[0] == ("user", "Snow?")
    unknown: Any = [{"type": "item_reference", "id": "msg_nothing-reply_0"}, user("So?")]
    with pytest.raises(openai.NotFoundError):
        await api.responses.create(model="scripted", input=unknown)


async def test_conversations_of_another_user_do_not_exist(threadline: Threadline) -> None:
    async with (
        serving(threadline, authenticate=authenticate_by_header) as client,
        sdk(client, "alice") as alice,
        sdk(client, "bob") as bob,
    ):
        made = await alice.conversations.create(items=[user("Hello")])
        (item,) = (await alice.conversations.items.list(made.id)).data
        answer = await alice.responses.create(model="scripted", input="Hi")
        item_id = str(item.id)
        reference: Any = {"type": "item_reference", "id": answer.output[0].id}
        for call in (
            bob.conversations.retrieve(made.id),
            bob.conversations.update(made.id, metadata={}),
            bob.conversations.delete(made.id),
            bob.conversations.items.create(made.id, items=[user("Hi")]),
            bob.conversations.items.retrieve(item_id, conversation_id=made.id),
            bob.conversations.items.delete(item_id, conversation_id=made.id),
            bob.responses.delete(answer.id),
            bob.responses.create(model="scripted", input=[reference, user("Hi")]),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        assert said((await alice.conversations.items.list(made.id)).data) == [("user", "Hello")]

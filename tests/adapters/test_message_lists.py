"""Message lists of the packages `openai` and `anthropic`, stored in a thread and read back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

import threadline
from threadline.adapters.anthropic import from_messages, to_messages
from threadline.adapters.openai import chat_to_messages, items_to_messages, messages_to_chat, messages_to_items
from threadline.core.messages import Message
from threadline.core.parts import FilePart, ReasoningPart, SourceUrlPart, ToolPart, plain_text

SIGNATURE = "ErUBCkYIBRgCKkAAAqz+/=" * 20
ENCRYPTED = "EqgfCioIARgBIiQ3YTAwMjY1Mi1mZjM5LTQ1NGUtODgxNC1k" * 30
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"

CHAT: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "name": "ada", "content": "Weather in Paris and Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}},
            {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "21 degrees"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "25 degrees"}]},
    {"role": "assistant", "content": "Paris 21, Rome 25.", "refusal": None, "annotations": []},
    {"role": "tool", "tool_call_id": "nobody", "content": "lost"},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]},
]

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "What is new in Rome?"},
    {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "I should search the web for this."}],
        "encrypted_content": ENCRYPTED,
    },
    {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "Rome news"},
    },
    {
        "id": "fc_1",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_1",
        "name": "weather",
        "arguments": '{"city": "Rome"}',
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "25 degrees"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [
            {
                "type": "output_text",
                "text": "A new metro station opened, and it has 25 degrees.",
                "logprobs": [],
                "annotations": [
                    {
                        "type": "url_citation",
                        "url": "https://example.org/metro",
                        "title": "Metro",
                        "start_index": 0,
                        "end_index": 27,
                    }
                ],
            }
        ],
    },
    {"type": "item_from_the_future", "id": "x_1", "value": [1, 2.5, None]},
    {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}]},
]

BLOCKS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "What is new?", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I search.", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": ENCRYPTED},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "news"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "https://example.org/metro",
                        "title": "Metro",
                        "encrypted_content": ENCRYPTED,
                        "page_age": "1 day",
                    }
                ],
            },
            {
                "type": "text",
                "text": "A station opened.",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://example.org/metro",
                        "title": "Metro",
                        "encrypted_index": ENCRYPTED,
                        "cited_text": "opened",
                    }
                ],
            },
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            {"type": "tool_use", "id": "toolu_2", "name": "draw", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "25", "is_error": False},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "is_error": True,
                "content": [
                    {"type": "text", "text": "no paint"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
                ],
            },
            {"type": "text", "text": "And tomorrow?"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Rain."}]},
]


@pytest.fixture
async def thread() -> Any:
    async with threadline.open(":memory:") as tl:
        yield await tl.as_user("ada").create_thread()


async def stored(thread: threadline.GatewayThread, messages: list[threadline.NewMessage]) -> list[Message]:
    await thread.append(*messages)
    return await thread.messages()


def calls_of(message: Message) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


@pytest.mark.req("G-03")
async def test_a_chat_list_is_read_back_equal_and_its_tool_calls_are_one_part_each(thread: Any) -> None:
    before = copy.deepcopy(CHAT)
    found = await stored(thread, chat_to_messages(CHAT))
    assert messages_to_chat(found) == CHAT == before
    assert [message.role for message in found] == ["system", "user", "assistant", "user"]
    assert [call.output_value() for call in calls_of(found[2])] == ["21 degrees", "25 degrees"]
    assert found[2].text == "Paris 21, Rome 25."


@pytest.mark.req("G-03")
async def test_items_of_responses_are_read_back_equal_and_what_the_assistant_did_is_one_message(thread: Any) -> None:
    found = await stored(thread, items_to_messages(ITEMS))
    assert messages_to_items(found) == ITEMS
    assert [message.role for message in found] == ["user", "assistant", "user"]
    assert [call.name for call in calls_of(found[1])] == ["web_search", "weather"]
    assert all(call.is_answered for call in calls_of(found[1]))
    assert any(isinstance(part, SourceUrlPart) for part in found[1].parts)
    assert isinstance(found[2].parts[0], FilePart)
    # A text is stored once: the copy refers to the parts.
    assert found[1].parts_json.count(ENCRYPTED.encode()) == 1
    assert found[2].parts_json.count(PICTURE.encode()) == 1


@pytest.mark.req("G-03")
async def test_blocks_are_read_back_equal_with_citations_server_tools_and_signatures(thread: Any) -> None:
    found = await stored(thread, to_messages(BLOCKS, system="Be brief."))
    back = from_messages(found)
    assert back.messages == BLOCKS
    assert back.system == "Be brief."
    assert [message.role for message in found] == ["system", "user", "assistant", "user", "assistant"]
    search, weather, draw = calls_of(found[2])
    assert search.output_value() == [
        {"type": "web_search_result", "url": "https://example.org/metro", "title": "Metro", "page_age": "1 day"}
    ]
    assert (weather.output_value(), draw.error) == ("25", "no paint")
    assert SourceUrlPart("https://example.org/metro", "https://example.org/metro", "Metro") in found[2].parts
    assert isinstance(found[2].parts[0], ReasoningPart)


@pytest.mark.req("G-03")
async def test_what_one_provider_wrote_is_continued_with_another(thread: Any) -> None:
    found = await stored(thread, [*items_to_messages(ITEMS), *to_messages(BLOCKS)])
    chat = messages_to_chat(found)
    called = [call["id"] for message in chat for call in message.get("tool_calls", ())]
    assert called == [message["tool_call_id"] for message in chat if message["role"] == "tool"]
    blocks = from_messages(found).messages
    assert blocks[-len(BLOCKS) :] == BLOCKS
    assert "A new metro station opened" in str(blocks)


async def test_objects_of_the_packages_can_be_stored(thread: Any) -> None:
    output = [*ITEMS[1:4], ITEMS[5]]
    response = Response.model_validate(
        {
            "id": "resp_1",
            "created_at": 0,
            "model": "m",
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
    answer = AnthropicMessage.model_validate(
        {
            "id": "msg_1",
            "model": "m",
            "type": "message",
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "stop_reason": "end_turn",
            "stop_sequence": None,
            **BLOCKS[1],
        }
    )
    found = await stored(thread, [*items_to_messages(response.output), *to_messages([answer])])
    assert messages_to_items(found[:1]) == output
    assert from_messages(found[1:]).messages[1:] == [BLOCKS[1]]


async def test_a_secret_is_masked_in_the_copy_too(thread: Any) -> None:
    secret = "sk-proj-" + "Ab3dE5fG7hJ9kL1m" * 3
    items = [{"id": "msg_1", "type": "message", "role": "assistant", "content": f"The key is {secret}"}]
    found = await stored(thread, items_to_messages(items))
    assert secret.encode() not in found[0].parts_json
    assert messages_to_items(found)[0]["id"] == "msg_1"
    assert messages_to_items(found)[0]["content"] == plain_text(found[0].parts)


@pytest.mark.parametrize("bad", ["text", {"role": "user"}, [5], [{"role": "wizard", "content": "x"}]])
@pytest.mark.parametrize("read", [chat_to_messages, items_to_messages, to_messages])
def test_what_is_no_message_list_is_refused_with_its_fault(read: Any, bad: Any) -> None:
    with pytest.raises(threadline.InvalidInput):
        read(bad)


words = st.sampled_from(["", "a", "b " * 30, "é"])
extras = st.dictionaries(st.sampled_from(["id", "status", "$part", "name"]), words | st.lists(words, max_size=2))
items = st.one_of(
    st.builds(
        lambda role, text, more: {**more, "role": role, "content": text},
        st.sampled_from(["user", "assistant"]),
        words,
        extras,
    ),
    st.builds(
        lambda kind, call, more: {"arguments": "{}", "output": "o", **more, "type": kind, "call_id": call},
        st.sampled_from(["function_call", "function_call_output", "custom_tool_call", "shell_call_output"]),
        st.sampled_from(["a", "b"]),
        extras,
    ),
    st.builds(lambda more: {**more, "type": "reasoning", "summary": []}, extras),
    st.builds(lambda more: {**more, "type": "unheard_of"}, extras),
)


@given(st.lists(items, max_size=8))
def test_any_list_of_items_is_read_back_equal(given_items: list[dict[str, Any]]) -> None:
    assert messages_to_items(items_to_messages(given_items)) == given_items

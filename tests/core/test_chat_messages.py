"""OpenAI's chat messages: valid pairs, arguments as JSON text, and round trips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import strategies
from tests.core.golden_files import as_ui, golden, golden_prompt
from tests.core.strategies import INJECTIONS
from threadline.core import jsontext
from threadline.core.chat_messages import FOREIGN_PART, from_chat, to_chat
from threadline.core.errors import InvalidInput
from threadline.core.parts import (
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
    tool_part,
)
from threadline.core.prompts import PromptMessage, say
from threadline.core.repair import repair


def assistant(*parts: Part) -> PromptMessage:
    return PromptMessage("assistant", parts)


def called(call_id: str, arguments: str) -> dict[str, Any]:
    function = {"name": "t", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def test_a_conversation_is_encoded_as_in_the_golden_file() -> None:
    assert to_chat(golden_prompt("conversation.ui.json")) == golden("conversation.chat.json")


def test_an_export_is_decoded_as_in_the_golden_file() -> None:
    assert as_ui(from_chat(golden("export.chat.json"))) == golden("export.ui.json")


def test_system_texts_get_the_requested_role() -> None:
    assert to_chat([say("system", "Be brief.")], system_role="developer") == [
        {"role": "developer", "content": "Be brief."}
    ]
    assert from_chat([{"role": "developer", "content": "Be brief."}]) == (say("system", "Be brief."),)


def test_calls_of_one_round_are_one_message_and_their_results_follow_in_order() -> None:
    reply = assistant(
        TextPart("Looking."),
        tool_part("t", "a", {}, output="1"),
        tool_part("t", "b", {}, error="broke"),
        TextPart("Done."),
    )
    messages = to_chat([reply])
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "assistant"]
    assert [call["id"] for call in messages[0]["tool_calls"]] == ["a", "b"]
    assert [(message["tool_call_id"], message["content"]) for message in messages[1:3]] == [("a", "1"), ("b", "broke")]


def test_arguments_are_kept_byte_for_byte_with_numbers_of_any_size() -> None:
    arguments = '{"at": 1e2, "n": 123456789012345678901234567890}'
    messages = [called("c", arguments), {"role": "tool", "tool_call_id": "c", "content": "ok"}]
    assert to_chat(from_chat(messages)) == messages


def test_malformed_arguments_stay_a_string_and_are_sent_inside_an_object() -> None:
    (reply,) = from_chat([called("c", '{"city": ')])
    (part,) = reply.parts
    assert isinstance(part, ToolPart)
    assert part.input_value() == '{"city": '
    arguments = to_chat([reply])[0]["tool_calls"][0]["function"]["arguments"]
    assert jsontext.parse(arguments) == {"malformed_input": '{"city": '}
    assert from_chat([called("c", arguments)]) == (reply,)


@pytest.mark.req("S1-13")
def test_a_dangling_call_is_never_sent() -> None:
    assert to_chat([assistant(tool_part("t", "c", {}))])[1:] == [
        {"role": "tool", "tool_call_id": "c", "content": "interrupted: no result was recorded"}
    ]


def test_reasoning_is_not_sent() -> None:
    signed = ReasoningPart("Hm.", {"anthropic": {"signature": "s"}})
    assert to_chat([assistant(signed, TextPart("So."))]) == [{"role": "assistant", "content": "So."}]


def test_adjacent_messages_of_one_role_are_joined_if_requested() -> None:
    neighbours = [say("user", "a"), say("user", "b"), assistant(TextPart("c")), assistant(TextPart("d"))]
    assert len(to_chat(neighbours)) == 4
    assert to_chat(neighbours, alternating=True) == [
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": "c\n\nd"},
    ]


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_that_looks_like_markup_stays_inside_the_users_content(text: str) -> None:
    assert to_chat([say("user", text)]) == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (
            FilePart("image/*", "https://example.org/a.png"),
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        ),
        (
            FilePart("image/png", "data:image/png;base64,R0lGODlhAQABAAAAACw="),
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlhAQABAAAAACw="}},
        ),
        (
            FilePart("application/pdf", "data:application/pdf;base64,JVBERi0xLjc=", "a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjc="}},
        ),
        (FilePart("text/csv", "data:text/csv,a%2Cb", "a.csv"), {"type": "text", "text": "[file a.csv, text/csv]\na,b"}),
        (FilePart("image/png", "data:image/png;base64,!!"), {"type": "text", "text": "[file, image/png]"}),
        (FilePart("image/png", "file:///etc/passwd"), {"type": "text", "text": "[file, image/png]"}),
    ],
)
def test_accepted_files_are_sent_and_others_become_notes(part: FilePart, sent: dict[str, Any]) -> None:
    assert to_chat([PromptMessage("user", (part,))]) == [{"role": "user", "content": [sent]}]


def test_links_and_files_become_file_parts() -> None:
    link = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    pdf = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjc="}}
    bare = {"type": "file", "file": {"filename": "a", "file_data": "JVBERi0xLjc="}}
    assert from_chat([{"role": "user", "content": [link, pdf, bare]}]) == (
        PromptMessage(
            "user",
            (
                FilePart("image/*", "https://example.org/a.png"),
                FilePart("application/pdf", "data:application/pdf;base64,JVBERi0xLjc=", "a.pdf"),
                FilePart("application/octet-stream", "JVBERi0xLjc=", "a"),
            ),
        ),
    )


def test_a_result_without_a_call_is_dropped() -> None:
    orphan = {"role": "tool", "tool_call_id": "gone", "content": "late"}
    hello = {"role": "assistant", "content": "Hello."}
    assert from_chat([orphan, hello]) == (assistant(TextPart("Hello.")),)
    assert from_chat([{"role": "user", "content": "hi"}, orphan, hello]) == (
        say("user", "hi"),
        assistant(TextPart("Hello.")),
    )


def test_a_content_part_of_an_unknown_kind_is_kept_unchanged() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    assert from_chat([{"role": "user", "content": [audio]}]) == (
        PromptMessage("user", (DataPart(FOREIGN_PART, audio),)),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "robot", "content": "x"},
        {"content": "x"},
        {"role": "user", "content": 7},
        {"role": "user", "content": ["x"]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
    ],
)
def test_an_invalid_message_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        from_chat([wrong])


def test_a_source_after_the_last_call_is_not_sent() -> None:
    call = ToolPart("c", "weather", "output-available", b"{}", output=b'"sun"')
    source = SourceUrlPart("s", "https://example.org")
    told = to_chat([assistant(call, StepStartPart(), source)])
    assert [message["role"] for message in told] == ["assistant", "tool"]


@pytest.mark.req("S1-13")
@given(strategies.histories, st.booleans())
def test_for_any_history_results_follow_their_calls(history: list[PromptMessage], alternating: bool) -> None:
    messages = to_chat(history, alternating=alternating)
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        assert message["content"] or message.get("tool_calls")
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        for call in message.get("tool_calls", ()):
            assert isinstance(jsontext.parse(call["function"]["arguments"]), dict)
    assert not waiting


answers: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, strategies.said),
    st.builds(tool_part, st.just("t"), strategies.call_ids, strategies.json_values, output=strategies.said),
)
conversations = st.lists(
    st.one_of(
        st.builds(say, st.sampled_from(["user", "system"]), strategies.said),
        st.builds(PromptMessage, st.just("assistant"), st.lists(answers, min_size=1, max_size=6).map(tuple)),
    ),
    max_size=6,
)


@given(conversations)
def test_chat_messages_round_trip_through_parts(history: list[PromptMessage]) -> None:
    messages = to_chat(history)
    again = from_chat(messages)
    assert to_chat(again) == messages
    calls = [part for message in repair(history) for part in message.parts if isinstance(part, ToolPart)]
    assert [part for message in again for part in message.parts if isinstance(part, ToolPart)] == calls


def test_rounds_with_only_calls_are_kept_apart() -> None:
    reply = assistant(tool_part("t", "a", {}, output="1"), StepStartPart(), tool_part("t", "b", {}, output="2"))
    messages = to_chat([reply])
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "tool"]
    assert from_chat(messages) == (reply,)

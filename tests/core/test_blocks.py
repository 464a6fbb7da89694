"""Anthropic's content blocks: valid pairs and roles, and lossless round trips."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import strategies
from tests.core.golden_files import as_ui, golden, golden_prompt
from tests.core.strategies import INJECTIONS
from threadline.core import jsontext
from threadline.core.blocks import FOREIGN_BLOCK, OPENING, from_blocks, messages_from_blocks, to_blocks
from threadline.core.errors import InvalidInput
from threadline.core.parts import (
    Approval,
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    StepStartPart,
    TextPart,
    ToolPart,
    tool_part,
)
from threadline.core.prompts import PromptMessage, join_same_role, say
from threadline.core.repair import repair

SIGNED = ReasoningPart("Hm.", {"anthropic": {"signature": "EqQBCg=="}})


def assistant(*parts: Part) -> PromptMessage:
    return PromptMessage("assistant", parts)


def test_a_conversation_is_encoded_as_in_the_golden_file() -> None:
    system, messages = to_blocks(golden_prompt("conversation.ui.json"))
    assert {"system": list(system), "messages": messages} == golden("conversation.blocks.json")


@pytest.mark.req("S4-05")
def test_a_session_file_is_decoded_as_in_the_golden_file() -> None:
    session = golden("session.blocks.json")
    assert as_ui(messages_from_blocks(session["messages"], system=session["system"])) == golden("session.ui.json")


@pytest.mark.req("S4-05")
@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "text", "text": "Hello"}],
        [{"type": "thinking", "thinking": "Hm.", "signature": "EqQBCg=="}, {"type": "text", "text": "So."}],
        [{"type": "redacted_thinking", "data": "ZW5j"}, {"type": "text", "text": "So."}],
    ],
)
def test_assistant_messages_round_trip(blocks: list[dict[str, Any]]) -> None:
    opening = {"role": "user", "content": [{"type": "text", "text": OPENING}]}
    assert to_blocks([assistant(*from_blocks(blocks))]).messages == [opening, {"role": "assistant", "content": blocks}]


@pytest.mark.req("S4-05")
@pytest.mark.parametrize(
    "result",
    [
        {"content": "sunny"},
        {"content": '{"degrees": 21}'},
        {},
        {"content": [{"type": "text", "text": "sunny"}, {"type": "text", "text": "and warm"}]},
        {"content": "it broke", "is_error": True},
    ],
)
def test_a_call_and_its_result_round_trip_as_one_part(result: dict[str, Any]) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "How is Rome?"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Rome"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", **result}]},
        {"role": "assistant", "content": [{"type": "text", "text": "So it is."}]},
    ]
    (_, reply) = found = messages_from_blocks(messages)
    assert [type(part) for part in reply.parts] == [ToolPart, TextPart]
    assert to_blocks(found).messages == messages


@pytest.mark.req("S4-05")
def test_a_malformed_tool_input_is_kept_as_a_string_and_sent_inside_an_object() -> None:
    (part,) = from_blocks([{"type": "tool_use", "id": "c", "name": "t", "input": '{"city": '}])
    assert isinstance(part, ToolPart)
    assert part.input_value() == '{"city": '
    (use,) = to_blocks([say("user", "go"), assistant(part)]).messages[1]["content"]
    assert use["input"] == {"malformed_input": '{"city": '}
    (again,) = from_blocks([use])
    assert again == part


def test_results_start_the_next_user_message_in_the_order_of_their_calls() -> None:
    calls = assistant(tool_part("t", "a", {}, output=1), tool_part("t", "b", {}, output=2))
    assert to_blocks([say("user", "go"), calls, say("user", "and?")]).messages[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": "2"},
            {"type": "text", "text": "and?"},
        ],
    }


def test_calls_of_different_rounds_are_kept_apart() -> None:
    reply = assistant(tool_part("t", "a", {}, output="1"), StepStartPart(), tool_part("t", "b", {}, output="2"))
    messages = to_blocks([say("user", "go"), reply]).messages
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages_from_blocks(messages) == (say("user", "go"), reply)


@pytest.mark.req("S1-13")
def test_a_dangling_call_is_never_sent() -> None:
    (*_, results) = to_blocks([say("user", "go"), assistant(tool_part("t", "c", {}))]).messages
    assert results["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": "interrupted: no result was recorded",
            "is_error": True,
        }
    ]


@pytest.mark.parametrize(
    ("approval", "words"),
    [(Approval("p", False, "not today"), "denied: not today"), (Approval("p", False), "denied"), (None, "denied")],
)
def test_a_denied_call_is_answered_with_the_reason(approval: Approval | None, words: str) -> None:
    denied = ToolPart("c", "t", "output-denied", b"{}", approval=approval)
    (result,) = to_blocks([say("user", "go"), assistant(denied)]).messages[-1]["content"]
    assert result == {"type": "tool_result", "tool_use_id": "c", "content": words, "is_error": True}


def test_reasoning_that_anthropic_did_not_sign_is_not_sent() -> None:
    foreign = ReasoningPart("Hm.", {"openai": {"itemId": "rs_1"}})
    messages = to_blocks([say("user", "go"), assistant(foreign, ReasoningPart("Plain."), TextPart("So."))]).messages
    assert messages[1]["content"] == [{"type": "text", "text": "So."}]


def test_adjacent_messages_of_one_role_are_joined_and_the_user_is_first() -> None:
    messages = to_blocks([assistant(TextPart("Welcome.")), say("user", "a"), say("user", "b")]).messages
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["text"] for block in messages[2]["content"]] == ["a", "b"]


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_that_looks_like_markup_stays_inside_the_users_content(text: str) -> None:
    system, messages = to_blocks([say("user", text)])
    assert system == ()
    assert messages == [{"role": "user", "content": [{"type": "text", "text": text}]}]


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (
            FilePart("image/*", "https://example.org/a.png", "a.png"),
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ),
        (
            FilePart("application/pdf", "https://example.org/a.pdf", "a.pdf"),
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}, "title": "a.pdf"},
        ),
        (
            FilePart("application/pdf", "data:application/pdf;base64,JVBERi0xLjc="),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="},
            },
        ),
        (
            FilePart("text/csv", "data:text/csv,a%2Cb", "a.csv"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
                "title": "a.csv",
            },
        ),
    ],
)
def test_files_are_sent_as_images_and_documents(part: FilePart, sent: dict[str, Any]) -> None:
    assert to_blocks([PromptMessage("user", (part,))]).messages[0]["content"] == [sent]


@pytest.mark.parametrize(
    "part",
    [
        FilePart("image/png", "data:image/png;base64,bm90IGEgcG5n", "x"),
        FilePart("image/png", "data:image/png;base64,!!", "x"),
        FilePart("image/png", "data:image/png", "x"),
        FilePart("image/svg+xml", "data:image/svg+xml,<svg/>", "x"),
        FilePart("text/plain", "data:text/plain;base64,//8=", "x"),
        FilePart("text/plain", "data:text/plain,", "x"),
        FilePart("application/zip", "https://example.org/a.zip", "x"),
        FilePart("text/plain", "file:text/plain,root", "x"),
        FilePart("application/pdf", "file:///etc/passwd", "x"),
        FilePart("image/png", "file:///etc/passwd", "x"),
    ],
)
def test_a_file_that_the_provider_would_reject_becomes_a_note(part: FilePart) -> None:
    (block,) = to_blocks([PromptMessage("user", (part,))]).messages[0]["content"]
    assert block == {"type": "text", "text": f"[file x, {part.media_type}]"}


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_every_accepted_image_type_is_detected_by_its_first_bytes(content: bytes, media_type: str) -> None:
    part = FilePart("image/x", f"data:image/x;base64,{base64.b64encode(content).decode()}")
    (block,) = to_blocks([PromptMessage("user", (part,))]).messages[0]["content"]
    assert block["source"]["media_type"] == media_type


def test_an_image_is_sent_with_the_type_of_its_bytes() -> None:
    gif = FilePart("image/png", "data:image/png;base64,R0lGODlhAQABAAAAACw=")
    (block,) = to_blocks([PromptMessage("user", (gif,))]).messages[0]["content"]
    assert block["source"]["media_type"] == "image/gif"
    assert to_blocks([say("user", "draw"), assistant(gif)]).messages[1]["content"] == [
        {"type": "text", "text": "[file, image/png]"}
    ]


def test_a_tool_may_return_an_image_and_a_look_alike_is_sent_as_json() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGODlhAQABAAAAACw="}}
    broken = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "?"}}
    odd = ({"type": "text"}, {"type": "text", "text": " "}, {"type": "text", "text": "a", "id": 1})
    calls = [tool_part("t", f"c{n}", {}, output=[value]) for n, value in enumerate((image, broken, *odd))]
    results = to_blocks([say("user", "go"), assistant(*calls)]).messages[-1]["content"]
    assert results[0]["content"] == [image]
    assert jsontext.parse(results[1]["content"]) == [broken]
    assert [jsontext.parse(result["content"]) for result in results[2:]] == [[value] for value in odd]


def test_blocks_without_an_equivalent_are_kept_and_not_sent() -> None:
    orphan = {"type": "tool_result", "tool_use_id": "gone", "content": "late"}
    odd = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    assert from_blocks([orphan, odd]) == (DataPart(FOREIGN_BLOCK, orphan), DataPart(FOREIGN_BLOCK, odd))
    found = messages_from_blocks([{"role": "user", "content": [orphan]}, {"role": "user", "content": "hi"}])
    assert to_blocks(found).messages == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


@pytest.mark.parametrize("wrong", [{"role": "robot", "content": "x"}, {"role": "user", "content": 7}, {"content": [7]}])
def test_an_invalid_message_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        messages_from_blocks([wrong])


def test_an_empty_message_is_dropped_and_thinking_may_be_unsigned() -> None:
    thinking = {"type": "thinking", "thinking": "Hm."}
    assert messages_from_blocks([{"role": "user", "content": ""}, {"role": "assistant", "content": [thinking]}]) == (
        assistant(ReasoningPart("Hm.")),
    )


def test_an_error_of_several_blocks_becomes_their_text() -> None:
    use = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    lines = [{"type": "text", "text": text} for text in ("it", "broke")]
    result = {"type": "tool_result", "tool_use_id": "c", "content": lines, "is_error": True}
    assert from_blocks([use, result]) == (tool_part("t", "c", {}, error="it\n\nbroke"),)


def test_the_first_result_of_a_call_is_kept() -> None:
    use = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    results = [{"type": "tool_result", "tool_use_id": "c", "content": text} for text in ("first", "second")]
    assert from_blocks([use, *results]) == (tool_part("t", "c", {}, output="first"),)


@pytest.mark.req("S1-13", "S4-05")
@given(strategies.histories)
def test_for_any_history_roles_alternate_and_results_follow_their_calls(
    history: list[PromptMessage],
) -> None:
    system, messages = to_blocks(history)
    assert all(text.strip() for text in system)
    for n, message in enumerate(messages):
        assert message["role"] == ("assistant" if n % 2 else "user")
        assert message["content"]
        assert message["content"][-1]["type"] not in ("thinking", "redacted_thinking")
        used = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if used:
            following = messages[n + 1]["content"]
            assert [block.get("tool_use_id") for block in following if block["type"] == "tool_result"] == used
            assert all(block["type"] == "tool_result" for block in following[: len(used)])


sound_parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, strategies.said),
    st.just(SIGNED),
    st.builds(StepStartPart),
    st.builds(tool_part, st.just("t"), strategies.call_ids, strategies.json_values, output=strategies.said | st.none()),
    st.builds(tool_part, st.just("t"), strategies.call_ids, strategies.json_values, error=strategies.said),
)
conversations = st.lists(
    st.one_of(
        st.builds(say, st.just("user"), strategies.said),
        st.builds(PromptMessage, st.just("assistant"), st.lists(sound_parts, min_size=1, max_size=6).map(tuple)),
    ),
    max_size=6,
)


def without_steps(messages: tuple[PromptMessage, ...]) -> list[PromptMessage]:
    return [
        PromptMessage(message.role, tuple(part for part in message.parts if not isinstance(part, StepStartPart)))
        for message in messages
    ]


@pytest.mark.req("S4-05")
@given(conversations)
def test_parts_round_trip_through_blocks(history: list[PromptMessage]) -> None:
    sound = tuple(join_same_role(repair([say("user", "begin"), *history])))
    blocks = to_blocks(sound).messages
    again = messages_from_blocks(blocks)
    assert without_steps(again) == without_steps(sound)
    assert to_blocks(again).messages == blocks

"""The dispatch payload, as it is sent and as the bridge reads it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.core import strategies
from tests.core.golden_files import golden, golden_prompt
from tests.core.strategies import INJECTIONS, stored, talk
from threadline.core import dispatch
from threadline.core.context import assemble
from threadline.core.errors import InvalidInput, InvalidMessage
from threadline.core.parts import DataPart, tool_part
from threadline.core.prompts import Prompt, PromptMessage, say
from threadline.core.windows import Window

SNAPSHOT = {"role": "system", "content": "Persisted user context:\nI live in Rome."}


def test_a_conversation_is_encoded_as_in_the_golden_file() -> None:
    payload = dispatch.payload(Prompt(golden_prompt("conversation.ui.json")))
    assert payload == {"messages": golden("conversation.chat.json"), "role": "user", "content": "And tomorrow?"}


@pytest.mark.req("S3-08")
def test_the_payload_is_snapshot_history_and_current_message_with_the_legacy_fields_beside_it() -> None:
    history = talk(1)
    request = stored("user", "now", seq=2)
    prompt = assemble(history, request, window=Window(turns=12), snapshot="I live in Rome.")
    assert dispatch.payload(prompt) == {
        "messages": [
            SNAPSHOT,
            {"role": "user", "content": "question 1"},
            {"role": "assistant", "content": "answer 1"},
            {"role": "user", "content": "now"},
        ],
        "role": "user",
        "content": "now",
    }


@pytest.mark.req("S3-02", "S3-08")
def test_a_message_without_content_has_no_entry_and_calls_have_their_results() -> None:
    call = PromptMessage("assistant", (tool_part("t", "c", {}, output=1),))
    data = PromptMessage("user", (DataPart("place", {"city": "Rome"}),))
    payload = dispatch.payload(Prompt((say("user", "go"), call, data, say("user", "and?"))))
    assert payload["messages"] == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "user", "content": "and?"},
    ]
    assert (payload["role"], payload["content"]) == ("user", "and?")


def test_a_body_with_both_spellings_keeps_both() -> None:
    body = {"messages": [{"role": "system", "content": "Be brief."}], "content": "hi"}
    assert dispatch.with_system_messages(body, None, None) == {**body, "role": "user"}


def test_content_parts_have_no_legacy_spelling() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert dispatch.with_system_messages({"messages": messages}, None, None) == {"messages": messages}


@pytest.mark.req("S3-09")
def test_blank_entries_are_dropped_and_the_rest_is_unchanged() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    listed = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    nothing: list[Any] = ["", " \n", None, []]
    blank = [{"role": "user", "content": content} for content in nothing]
    messages = [*blank, call, {"role": "assistant"}, listed]
    assert dispatch.normalize({"messages": messages}) == [call, listed]


@pytest.mark.req("S3-09")
@pytest.mark.parametrize(
    "body", [{"content": "hi"}, {"role": "user", "content": "hi"}, {"role": None, "content": "hi", "messages": []}]
)
def test_without_messages_role_and_content_make_one_with_role_user(body: dict[str, Any]) -> None:
    assert dispatch.normalize(body) == [{"role": "user", "content": "hi"}]


@pytest.mark.req("S3-09")
def test_blank_messages_fall_back_to_the_legacy_fields() -> None:
    body = {"messages": [{"role": "user", "content": " "}], "role": "assistant", "content": "hi"}
    assert dispatch.normalize(body) == [{"role": "assistant", "content": "hi"}]


@pytest.mark.req("S3-09", "S0-07", "S0-08")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": None, "content": None},
        {"messages": None, "role": "tool"},
        {"tool_calls": [{"id": "c"}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"role": "user", "content": " \n"},
        {"messages": "hello", "content": "hi"},
        {"messages": 7, "content": "hi"},
        {"messages": {"role": "user", "content": "hi"}},
        {"messages": ["hi"]},
        {"messages": [{"role": "root", "content": "hi"}]},
        {"messages": [{"role": 7, "content": "hi"}]},
        {"role": ["user"], "content": "hi"},
        {"content": 7},
    ],
)
def test_a_payload_without_a_message_is_refused(body: dict[str, Any]) -> None:
    for read in (dispatch.normalize, lambda given: dispatch.with_system_messages(given, "kept", None)):
        with pytest.raises(InvalidMessage) as refused:
            read(body)
        assert refused.value.code == "invalid_message"
        assert isinstance(refused.value, InvalidInput)


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_that_looks_like_markup_stays_user_text(text: str) -> None:
    payload = dispatch.payload(Prompt((say("user", text),)))
    assert payload == {"messages": [{"role": "user", "content": text}], "role": "user", "content": text}


@pytest.mark.req("S3-08", "S3-09")
@given(strategies.histories)
def test_the_bridge_reads_every_payload_unchanged(history: list[PromptMessage]) -> None:
    payload = dispatch.payload(Prompt((*history, say("user", "now"))))
    assert dispatch.normalize(payload) == payload["messages"]
    assert payload["messages"][-1] == {"role": payload["role"], "content": payload["content"]}

"""pydantic-ai's types as oracles for the AI SDK's formats: they read what we write, and we read what they write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai.ui.vercel_ai import request_types, response_types

from tests.service.conftest import SERVICE
from tests.service.running_service import THREADS, serving
from threadline.bootstrap import open as open_threadline
from threadline.core import events
from threadline.core.events import Event
from threadline.core.messages import NewMessage, assistant, user
from threadline.core.parts import (
    Approval,
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    SourceDocumentPart,
    SourceUrlPart,
    StepStartPart,
    TextPart,
    ToolPart,
    tool_part,
)
from threadline.core.turns import TurnStatus
from threadline.service.aisdk.chat_request import parse_chat_request
from threadline.service.aisdk.chunk_writer import ChunkWriter
from threadline.settings import Settings

KNOWN: dict[str, type[response_types.BaseChunk]] = {
    kind.model_fields["type"].default: kind
    for kind in vars(response_types).values()
    if isinstance(kind, type) and issubclass(kind, response_types.BaseChunk) and "type" in kind.model_fields
}
SAID: list[Event] = [
    events.Status("thinking"),
    events.StepStart(),
    events.ReasoningDelta("Hm."),
    events.ReasoningEnd({"provider": {"signature": "s"}}),
    events.TextDelta("Let me see."),
    events.ToolInputStart("c1", "look"),
    events.ToolInputDelta("c1", '{"at'),
    events.ToolCall("c1", "look", {"at": 1}),
    events.ToolResult("c1", "half", preliminary=True),
    events.ToolResult("c1", None),
    events.ToolCall("c2", "look", "not an object"),
    events.ToolError("c2", "blind"),
    events.ToolCall("c3", "pay", {}),
    events.ToolDenied("c3", "no"),
    events.ToolCall("c4", "pay", {}),
    events.ApprovalRequest("c4", "a4"),
    events.Source("s1", "http://x", "X"),
    events.Source("s2", "http://y"),
    events.FinalText("Let me look."),
    events.StepStart(),
    events.TextDelta("So."),
    events.Finish("tool-calls"),
]
ENDS: list[TurnStatus] = ["executed", "stopped", "dispatch_failed", "interrupted"]

PARTS: tuple[Part, ...] = (
    StepStartPart(),
    ReasoningPart("Hm.", {"provider": {"signature": "s"}}),
    ReasoningPart("Plain."),
    TextPart("Let me see."),
    SourceUrlPart("s1", "http://x", "X"),
    SourceUrlPart("s2", "http://y"),
    SourceDocumentPart("s3", "application/pdf", "A paper", "paper.pdf"),
    FilePart("image/png", "data:image/png;base64,AAAA", "dot.png"),
    DataPart("weather", {"sun": True}, "d1"),
    ToolPart("c0", "look", "input-streaming", b'{"at":1}'),
    tool_part("look", "c1", {"at": 1}),
    tool_part("look", "c2", {"at": 1}, output=None),
    tool_part("look", "c3", {"at": 1}, error="blind"),
    ToolPart("c4", "pay", "approval-requested", b"{}", approval=Approval("a4")),
    ToolPart("c5", "pay", "approval-responded", b"{}", approval=Approval("a5", True)),
    ToolPart("c6", "pay", "output-available", b"{}", b'"paid"', approval=Approval("a6", True, "fine")),
    ToolPart("c7", "pay", "output-denied", b"{}", approval=Approval("a7", False, "too dear")),
    ToolPart("c8", "pay", "output-error", b"{}", error="no money", approval=Approval("a8", True)),
    tool_part("look", "c9", {"at": 1}, output=[1], dynamic=True),
)
"""A part of every type and a tool call in every state that a reply can contain."""


def parsed(chunk: dict[str, Any]) -> response_types.BaseChunk:
    kind = response_types.DataChunk if chunk["type"].startswith("data-") else KNOWN[chunk["type"]]
    return kind.model_validate(chunk, strict=True)


@pytest.mark.req("S1-19")
@pytest.mark.parametrize("status", ENDS)
def test_every_chunk_is_valid_for_the_oracles(status: TurnStatus) -> None:
    writer = ChunkWriter("m1")
    stream = writer.start("t:0") + b"".join(writer.event(event, "t:1") for event in SAID) + writer.end(status, "why")
    lines = [line[6:] for line in stream.decode().splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    for chunk in map(json.loads, lines):
        again = parsed(chunk).model_dump(by_alias=True, exclude_none=True, mode="json")
        assert {**again, **_nulls(chunk)} == chunk


def _nulls(chunk: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chunk.items() if value is None}


@pytest.mark.req("S1-11", "S1-32")
async def test_every_stored_part_is_valid_for_the_oracles() -> None:
    async with open_threadline(settings=Settings(database=":memory:", service=SERVICE)) as tl, serving(tl) as client:
        thread = await tl.as_user().create_thread(state_key="key")
        asked = user((TextPart("Look."), FilePart("image/png", "data:image/png;base64,AAAA")))
        await thread.append(
            asked, assistant(PARTS), NewMessage("assistant", (TextPart("x"),), metadata={"status": "x"})
        )
        messages = (await client.http.get(f"{THREADS}/key")).json()["messages"]
    for message in messages:
        again = request_types.UIMessage.model_validate(message).model_dump(by_alias=True, exclude_none=True)
        assert [part["type"] for part in again["parts"]] == [part["type"] for part in message["parts"]]
        assert [part.get("state") for part in again["parts"] if "toolCallId" in part] == [
            part.get("state") for part in message["parts"] if "toolCallId" in part
        ]


@pytest.mark.req("S1-03")
def test_requests_of_the_oracles_are_parsed() -> None:
    words = request_types.TextUIPart(text="Hello")
    asked = request_types.UIMessage(id="u1", role="user", parts=[words])
    body = request_types.SubmitMessage(id="key", messages=[asked]).model_dump_json(by_alias=True, exclude_none=True)
    request = parse_chat_request(body.encode())
    assert request.state_key == "key"
    assert request.question is not None
    message = request.question.message()
    assert (message.id, message.text) == ("u1", "Hello")


def test_approval_decisions_of_the_oracles_are_parsed() -> None:
    answered = request_types.ToolApprovalRespondedPart(
        type="tool-pay",
        tool_call_id="c1",
        input={"sum": 5},
        approval=request_types.ToolApprovalResponded(id="a1", approved=False, reason="no"),
    )
    reply = request_types.UIMessage(id="t1-reply", role="assistant", parts=[answered])
    body = request_types.SubmitMessage(id="key", messages=[reply]).model_dump_json(by_alias=True, exclude_none=True)
    claim = parse_chat_request(body.encode()).claim
    assert claim is not None
    (call,) = claim.calls
    assert (claim.message_id, call.approval, call.input_value()) == (
        "t1-reply",
        Approval("a1", False, "no"),
        {"sum": 5},
    )

"""The chunk writer as a property: a strict client accepts the chunks of any sequence of events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import transcripts
from threadline.core import events
from threadline.core.event_fold import Fold
from threadline.core.events import Event
from threadline.core.turns import TurnStatus
from threadline.service.aisdk.chunk_writer import DONE, ChunkWriter, frame

KEYS = {
    "start": {"messageId"},
    "start-step": set[str](),
    "finish-step": set[str](),
    "text-start": {"id"},
    "text-delta": {"id", "delta"},
    "text-end": {"id"},
    "reasoning-start": {"id"},
    "reasoning-delta": {"id", "delta"},
    "reasoning-end": {"id"},
    "tool-input-start": {"toolCallId", "toolName"},
    "tool-input-delta": {"toolCallId", "inputTextDelta"},
    "tool-input-available": {"toolCallId", "toolName", "input"},
    "tool-output-available": {"toolCallId", "output"},
    "tool-output-error": {"toolCallId", "errorText"},
    "tool-output-denied": {"toolCallId"},
    "tool-approval-request": {"approvalId", "toolCallId"},
    "source-url": {"sourceId", "url"},
    "source-document": {"sourceId", "mediaType", "title"},
    "file": {"url", "mediaType"},
    "message-metadata": {"messageMetadata"},
    "data": {"data"},
    "finish": set[str](),
    "error": {"errorText"},
    "abort": set[str](),
}
OPTIONAL = {
    "tool-output-available": {"preliminary"},
    "source-url": {"title"},
    "source-document": {"filename"},
    "data": {"id", "transient"},
}
APPROVALS = {"tool-approval-request", "tool-output-denied"}


def written(events: list[Event], status: TurnStatus = "executed", major: int | None = None) -> list[dict[str, Any]]:
    """The chunks of folded events, which is what streams contain."""
    writer, fold = ChunkWriter("m1", major), Fold()
    raw = writer.start()
    for event in events:
        for shown in fold.add(event):
            raw += writer.event(shown)
    raw += writer.end(status)
    assert raw.endswith(DONE)
    return [json.loads(each[6:]) for each in raw.decode().removesuffix(DONE.decode()).split("\n\n") if each]


@given(
    transcripts,
    st.sampled_from(["executed", "stopped", "dispatch_failed", "interrupted"]),
    st.sampled_from([None, 5]),
)
@pytest.mark.req("S1-18", "S1-19", "S1-32")
def test_a_strict_client_accepts_any_sequence_of_events(
    events: list[Event], status: TurnStatus, major: int | None
) -> None:
    chunks = written(events, status, major)
    assert major is None or not APPROVALS & {chunk["type"] for chunk in chunks}
    opened: dict[str, str] = {}
    calls: set[str] = set()
    in_step = False
    for chunk in chunks:
        kind = chunk["type"]
        keys = set(chunk) - {"type"}
        kind = "data" if kind.startswith("data-") else kind
        assert None not in [chunk[key] for key in keys - {"data", "input", "output"}]
        assert KEYS[kind] <= keys <= KEYS[kind] | OPTIONAL.get(kind, set())
        name, _, what = kind.partition("-")
        if name in ("text", "reasoning"):
            if what == "start":
                assert not opened
                opened[chunk["id"]] = name
            else:
                assert opened.get(chunk["id"]) == name
                if what == "end":
                    del opened[chunk["id"]]
        elif kind in ("tool-input-start", "tool-input-available"):
            assert not opened
            calls.add(chunk["toolCallId"])
        elif name == "tool":
            assert chunk["toolCallId"] in calls
        elif kind in ("start-step", "finish-step"):
            assert in_step is (kind == "finish-step")
            in_step = not in_step
    assert (opened, in_step) == ({}, False)
    assert [chunk["type"] for chunk in chunks if chunk["type"] in ("finish", "error", "abort")] == [chunks[-1]["type"]]


@pytest.mark.req("S1-19")
@pytest.mark.parametrize(
    ("status", "major", "last"),
    [
        ("executed", 6, {"type": "finish", "finishReason": "length"}),
        # Releases before 5.0.92 refuse a finish reason.
        ("executed", 5, {"type": "finish"}),
        ("executed", None, {"type": "finish"}),
        ("stopped", 6, {"type": "abort"}),
        ("interrupted", 6, {"type": "error", "errorText": "turn ended with status interrupted"}),
    ],
)
def test_the_turns_status_decides_how_a_stream_ends(
    status: TurnStatus, major: int | None, last: dict[str, Any]
) -> None:
    assert written([events.TextDelta("x"), events.Finish("length")], status, major)[-1] == last


def test_only_the_last_chunk_of_an_event_has_its_id() -> None:
    raw = ChunkWriter("m1").event(events.TextDelta("x"), "t:1")
    assert raw == frame({"type": "text-start", "id": "p1"}) + frame(
        {"type": "text-delta", "id": "p1", "delta": "x"}, "t:1"
    )

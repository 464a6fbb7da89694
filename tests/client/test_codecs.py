"""What the client reads, as values: the stream back into events, problems back into errors."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.api_search_types import SearchResponse
from threadline.client.replies import End, Frame, FrameReader, Start, parse_frame
from threadline.client.transport import to_error
from threadline.client.values import read
from threadline.core import errors, events
from threadline.core.errors import ServiceUnavailable, ThreadlineError
from threadline.core.events import Event
from threadline.service.aisdk.event_writer import EventWriter

WORDS = st.text('ab é\n\r"\\:😀\u2028\x85\x0b', min_size=1, max_size=8)
JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | WORDS, st.lists, max_leaves=4)
SAID: dict[str, st.SearchStrategy[Any]] = {
    "text": st.builds(events.TextDelta, WORDS),
    "call": st.builds(events.ToolCall, WORDS, WORDS, JSON),
    "result": st.builds(events.ToolResult, WORDS, JSON, st.booleans()),
    "error": st.builds(events.ToolError, WORDS, WORDS),
    "approval": st.builds(events.ApprovalRequest, WORDS, WORDS),
    "denied": st.builds(events.ToolDenied, WORDS, st.none() | WORDS),
    "source": st.builds(events.Source, WORDS, WORDS, st.none() | WORDS),
    "status": st.builds(events.Status, WORDS),
    "input": st.builds(events.ToolInputStart, WORDS, WORDS),
    "step": st.builds(events.StepStart),
    "again": st.builds(events.Restart),
}


def read_back(stream: bytes, size: int = 7) -> list[Frame | None]:
    reader = FrameReader()
    frames = [data for at in range(0, len(stream), size) for _, data in reader.feed(stream[at : at + size])]
    assert frames.pop() == b"[DONE]"
    return [parse_frame(data) for data in frames]


@given(st.lists(st.one_of(*SAID.values()), max_size=5), st.integers(1, 200))
def test_what_the_service_writes_is_read_back(sent: list[Event], size: int) -> None:
    writer = EventWriter("m", "t")
    stream = writer.start("t:0") + b"".join(writer.event(event, f"t:{n}") for n, event in enumerate(sent, 1))
    assert read_back(stream + writer.end("stopped", "why"), size) == [Start("m", "t"), *sent, End("stopped", "why")]


def test_ids_and_comments() -> None:
    reader = FrameReader()
    assert reader.feed(b': keep-alive\n\nid:t:1\r\ndata: {"type":"start"}\r\n\r\n') == [("t:1", b'{"type":"start"}')]


@pytest.mark.parametrize("data", [b"nonsense", b"[]", b'{"type":"text-delta"}', b'{"type":"tool-error"}'])
def test_a_stream_that_cannot_be_read_says_so(data: bytes) -> None:
    with pytest.raises(ServiceUnavailable):
        parse_frame(data)


def test_events_of_a_newer_service_are_skipped() -> None:
    assert parse_frame(b'{"type":"custom","more":1}') is None


KINDS = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, ThreadlineError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_keeps_its_class_and_text_over_http(kind: type[ThreadlineError]) -> None:
    error = to_error(499, b'{"code":"%s","detail":"so it is","currentCount":3}' % kind.code.encode())
    assert (type(error), str(error)) == (kind, "so it is")
    assert vars(error)["current_count"] == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.TokenRefused),
        (403, errors.Refused),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (429, errors.ServiceUnavailable),
        (431, errors.InvalidInput),
        (500, errors.ThreadlineError),
        (503, errors.ServiceUnavailable),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"code":7}', b'{"code":"newer","detail":null}'])
def test_a_problem_that_is_not_known_is_the_nearest_error(status: int, kind: type, body: bytes) -> None:
    assert type(to_error(status, body)) is kind


def test_an_answer_of_another_shape_is_no_answer() -> None:
    with pytest.raises(ServiceUnavailable):
        read(b'{"hits":3}', SearchResponse)

"""Recorded streams of providers and the events they become. The files are in `golden/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.agents.provider_streams import AnthropicStream, OpenAIStream
from threadline.core import events
from threadline.net.retry import RequestFailed

GOLDEN = Path(__file__).parent / "golden"
STREAMS = sorted(path for path in GOLDEN.glob("*.jsonl") if not path.name.endswith(".events.jsonl"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["text", "tool_use", "text_delta", "x", ""]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "index", "delta", "choices", "content_block", "tool_calls", "function", "content",
                         "name", "id", "arguments", "usage", "message", "finish_reason", "text", "thinking"]),
        inner, max_size=5,
    ),
)  # fmt: skip


def codec(name: str) -> Any:
    return OpenAIStream() if name.startswith("openai") else AnthropicStream()


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_stream_becomes_these_events(path: Path) -> None:
    deltas = codec(path.name)
    heard = [event for line in path.read_text().splitlines() for event in deltas.feed(json.loads(line))]
    heard += deltas.end()
    expected = path.with_suffix(".events.jsonl").read_text()
    assert "".join(events.to_json(event).decode() + "\n" for event in heard) == expected


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_truncated_stream_is_never_accepted_as_complete(path: Path) -> None:
    lines = path.read_text().splitlines()
    ending = next(n for n, line in enumerate(lines) if '_reason":"' in line)
    for size in range(ending):
        deltas = codec(path.name)
        for line in lines[:size]:
            list(deltas.feed(json.loads(line)))
        with pytest.raises(RequestFailed, match="stopped in the middle"):
            list(deltas.end())


@pytest.mark.parametrize("name", ["openai", "anthropic"])
@given(chunks=st.lists(JSON, max_size=6))
def test_any_input_gives_events_or_request_failed(name: str, chunks: list[Any]) -> None:
    deltas = codec(name)
    try:
        for chunk in [*chunks, {"choices": [{"finish_reason": "stop"}], "type": "x"}]:
            for event in deltas.feed(chunk):
                assert events.from_json(events.to_json(event)) == event
        list(deltas.end())
    except RequestFailed:
        pass

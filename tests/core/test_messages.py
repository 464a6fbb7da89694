"""Messages: new ones, stored ones decoded on demand, and the AI SDK's form built around the stored bytes."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.core import messages, parts
from threadline.core.errors import InvalidInput
from threadline.core.messages import Message, NewMessage, Role, all_from_us, from_us, new_message, to_ui, to_us

STORED = Message(
    id="m1",
    role="assistant",
    timeline_id="t1",
    seq=3,
    parts_json='[ {"type":"text", "text":"Hé"},{"type":"hologram","n":1e2} ]'.encode(),
    metadata_json=b'{"n":18446744073709551617}',
    turn_id="turn-1",
    created_us=1_767_268_800_000_001,
)


def test_a_stored_message_is_decoded_on_demand() -> None:
    assert STORED.text == "Hé"
    assert STORED.parts == (parts.TextPart("Hé"), parts.OtherPart("hologram", b'{"type":"hologram","n":1e2}'))
    assert STORED.metadata == {"n": 2**64 + 1}
    assert STORED.created_at == dt.datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=dt.UTC)
    assert msgspec.structs.replace(STORED, metadata_json=None).metadata == {}


def test_a_ui_message_is_built_around_the_stored_bytes() -> None:
    assert to_ui(STORED) == (
        b'{"id":"m1","role":"assistant","metadata":{"n":18446744073709551617},"parts":' + STORED.parts_json + b"}"
    )
    bare = msgspec.structs.replace(STORED, metadata_json=None, id='q"uote')
    assert to_ui(bare) == b'{"id":"q\\"uote","role":"assistant","parts":' + STORED.parts_json + b"}"
    assert json.loads(to_ui(bare))["id"] == 'q"uote'


def test_text_meant_for_a_stream_stays_inside_one_line() -> None:
    injected = '\n\ndata: {"type":"finish"}\n\n'
    raw = parts.encode([parts.TextPart(injected)])
    line = to_ui(msgspec.structs.replace(STORED, parts_json=raw))
    assert b"\n" not in line
    assert json.loads(line)["parts"][0]["text"] == injected


@pytest.mark.parametrize(("made", "role"), [(messages.user("hi"), "user"), (messages.assistant("hi"), "assistant")])
def test_a_string_becomes_one_text_part(made: NewMessage, role: Role) -> None:
    assert made == NewMessage(role, (parts.TextPart("hi"),))
    assert made.text == "hi"


def test_parts_are_kept_in_their_order() -> None:
    said = (parts.TextPart("a"), parts.StepStartPart(), parts.TextPart("b"))
    made = new_message("assistant", said, id="m1", metadata={"a": 1})
    assert (made.parts, made.id, made.metadata) == (said, "m1", {"a": 1})
    assert NewMessage("user", b'[{"type":"text","text":"raw"}]').text == "raw"


@pytest.mark.parametrize("role", ["tool", "System", "", "root", None, 1])
def test_any_other_role_is_refused(role: Any) -> None:
    with pytest.raises(InvalidInput, match="role"):
        new_message(cast("Role", role), "hi")


zones = st.builds(dt.timezone, st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)))


@given(st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=zones))  # noqa: DTZ001 - they get a zone
def test_a_time_round_trips_as_microseconds(moment: dt.datetime) -> None:
    assert from_us(to_us(moment)) == moment
    assert from_us(to_us(moment)).tzinfo is dt.UTC


until_2106 = st.integers(0, 2**32 * 1_000_000 - 1)
ever = st.integers(to_us(dt.datetime(1, 1, 2, tzinfo=dt.UTC)), to_us(dt.datetime(9999, 12, 30, tzinfo=dt.UTC)))


@given(st.lists(until_2106) | st.lists(ever))
def test_many_times_convert_like_single_ones(microseconds: list[int]) -> None:
    found = all_from_us(microseconds)
    assert found == [from_us(each) for each in microseconds]
    assert all(moment.tzinfo is dt.UTC for moment in found)


def test_microseconds_count_from_1970() -> None:
    assert to_us(dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)) == 1_000_000
    assert to_us(dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)) == -1

"""The export format: what is written is read back, and an invalid line is refused by its number."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from threadline.core.errors import InvalidImport
from threadline.core.messages import Message
from threadline.core.threads import Thread
from threadline.core.transfer import EndLine, MessageLine, Reader, ThreadLine, Writer, markdown_head, markdown_message

MOMENT = dt.datetime(2026, 11, 15, 12, 0, tzinfo=dt.UTC)
LONGEST = 10_000


def thread(**fields: Any) -> Thread:
    plain: dict[str, Any] = {
        "id": "t1",
        "owner_id": "ada",
        "state_key": "k1",
        "timeline_id": "l1",
        "title": "Lisbon",
        "title_by_person": True,
        "agent_id": None,
        "model": None,
        "system_prompt": None,
        "working_dir": None,
        "metadata": {"trip": 1},
        "message_count": 2,
        "token_count": 0,
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "archived_at": None,
        "deleted_at": None,
    }
    return Thread(**{**plain, **fields})


def message(seq: int, parts: bytes = b'[{"type":"text","text":"hi"}]', **fields: Any) -> Message:
    plain: dict[str, Any] = {
        "id": f"m{seq}",
        "role": "user",
        "timeline_id": "l1",
        "seq": seq,
        "parts_json": parts,
        "metadata_json": None,
        "turn_id": None,
        "created_us": 1_763_208_000_000_000 + seq,
    }
    return Message(**{**plain, **fields})


def block(*messages: Message) -> list[bytes]:
    writer = Writer()
    return [writer.thread(thread()), *(writer.message(each) for each in messages), writer.end()]


def read(lines: list[bytes]) -> list[ThreadLine | MessageLine | EndLine]:
    return list(Reader(LONGEST).lines(lines))


def test_an_exported_thread_is_read_back_unchanged() -> None:
    odd = b'[{"type":"text","text":"\xc3\xa9"},{"type":"data-x", "data":18446744073709551616}]'
    lines = read(block(message(0), message(1, odd, role="assistant", metadata_json=b'{"a":1}')))
    assert isinstance(lines[0], ThreadLine)
    assert (lines[0].thread.id, lines[0].thread.title, lines[0].thread.metadata) == ("t1", "Lisbon", {"trip": 1})
    assert isinstance(lines[2], MessageLine)
    assert lines[2].message.parts == odd
    assert (lines[2].message.role, lines[2].message.metadata) == ("assistant", {"a": 1})
    assert lines[2].message.created_at == message(1).created_at
    assert lines[3] == EndLine(2)


def test_one_file_may_contain_several_threads() -> None:
    assert [type(line) for line in read([*block(message(0)), *block()])] == [
        ThreadLine,
        MessageLine,
        EndLine,
        ThreadLine,
        EndLine,
    ]


def changed(index: int, line: bytes) -> list[bytes]:
    lines = block(message(0), message(1))
    lines[index] = line
    return lines


@pytest.mark.parametrize(
    ("lines", "number", "reason"),
    [
        ([], 1, "empty"),
        (block(message(0))[:-1], 2, "cut short"),
        ([*block(message(0))[:-1], block(message(0))[-1][:-5]], 3, "cut short"),
        (changed(1, block(message(0))[1].replace(b"hi", b"ho")), 4, "SHA-256"),
        (block(message(0), message(1))[:2] + block(message(0), message(1))[3:], 3, "got 1"),
        (changed(2, block(message(0))[1]), 3, "must be unique"),
        (changed(1, b'{"message":1}\n'), 2, "must be a `message` or `end` line, got the keys 'message'"),
        (changed(0, b'{"message":{}}\n'), 1, "must be a `thread` line"),
        (changed(0, b'{"threadline":2,"thread":{}}\n'), 1, "format version must be 1, got '2'"),
        (changed(0, b'{"threadline":1,"thread":{"owner_id":"eve"}}\n'), 1, "owner_id"),
        (changed(1, block(message(0))[1][:-1] + b"\r\n"), 2, "carriage return"),
        (changed(1, b'{"a":"\x00"}\n'), 2, "NUL"),
        (changed(1, b"x" * (LONGEST + 1)), 2, "line size in bytes must be at most"),
        (changed(1, b'{"a":1,"a":2}\n'), 2, "duplicate key"),
        (changed(1, b"{"), 2, "newline"),
        (
            changed(1, b'{"createdAt":"yesterday","message":{"id":"m","role":"user","parts":[]}}\n'),
            2,
            "must be an ISO 8601 time, got 'yesterday'",
        ),
        (changed(1, b'{"createdAt":"2026-01-01T00:00:00","message":{"id":"m","role":"user","parts":[]}}\n'), 2, "zone"),
        (
            changed(1, b'{"createdAt":"x","message":{"id":"m","role":"user","parts":[],"approved":true}}\n'),
            2,
            "must not have the key 'approved'",
        ),
    ],
)
def test_a_bad_line_is_named(lines: list[bytes], number: int, reason: str) -> None:
    with pytest.raises(InvalidImport, match=reason) as caught:
        read(lines)
    assert caught.value.line == number


def test_markdown_shows_who_said_what_and_what_tools_did() -> None:
    tool = b'{"type":"tool-clock","toolCallId":"c","state":"output-available","input":{"zone":"UTC"},"output":"12:00"}'
    text = markdown_head(thread()) + markdown_message(
        message(
            0, b'[{"type":"reasoning","text":"Hm."},' + tool + b',{"type":"text","text":"Noon."}]', role="assistant"
        )
    )
    assert text.startswith("# Lisbon\n")
    for expected in (
        "## Assistant",
        "> Hm.",
        "**Tool clock** (output-available)",
        '{"zone":"UTC"}',
        '"12:00"',
        "Noon.",
    ):
        assert expected in text

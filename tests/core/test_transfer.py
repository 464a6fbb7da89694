"""The export format: what is written is read back, and an invalid line is refused by its number."""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any

import pytest

from threadline.core.errors import InvalidImport
from threadline.core.history import (
    HistoryItem,
    MessageRecord,
    PastTurn,
    RecordPoint,
    SavedPointRecord,
    SummaryRecord,
    ThreadRecord,
    TimelineRecord,
)
from threadline.core.messages import Message
from threadline.core.threads import Thread
from threadline.core.transfer import Writer, markdown_head, markdown_message
from threadline.core.transfer_reader import Reader

MOMENT = dt.datetime(2026, 11, 15, 12, 0, tzinfo=dt.UTC)
LONGEST = 10_000


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


RECORD = ThreadRecord(
    id="t1", state_key="k1", title="Lisbon", title_by_person=True, metadata={"trip": 1}, timeline="0",
    is_title_suggested=False, created_at=MOMENT, updated_at=MOMENT,
)  # fmt: skip


def block(*messages: Message) -> list[bytes]:
    writer = Writer()
    return [
        writer.thread(RECORD),
        writer.item(TimelineRecord("0", None, MOMENT)),
        *(writer.message(each) for each in messages),
        writer.end(),
    ]


def read(lines: list[bytes]) -> list[tuple[ThreadRecord, list[HistoryItem]]]:
    return [(found.thread, list(found.items)) for found in Reader(LONGEST).blocks(lines)]


def test_an_exported_thread_is_read_back_unchanged() -> None:
    odd = b'[{"type":"text","text":"\xc3\xa9"},{"type":"data-x", "data":18446744073709551616}]'
    turn = PastTurn(id="u1", surface="web", status="executed", created_at=MOMENT, request_seq=0, usage={"cost": 0.1})
    fork = TimelineRecord("1", RecordPoint("0", 0), MOMENT)
    saved = SavedPointRecord("start", RecordPoint("0", -1), MOMENT)
    summary = SummaryRecord(RecordPoint("1", 0), "They said hi.", MOMENT, "person")
    writer = Writer()
    lines = [
        writer.thread(RECORD),
        writer.item(turn),
        writer.item(TimelineRecord("0")),
        writer.message(message(0, turn_id="u1")),
        writer.message(message(1, odd, role="assistant", metadata_json=b'{"a":1}')),
        writer.item(fork),
        writer.item(saved),
        writer.item(summary),
        writer.end(),
    ]
    ((thread, items),) = read(lines)
    assert all(getattr(thread, name) == getattr(RECORD, name) for name in ThreadRecord.__struct_fields__)
    for found, written in zip((items[0], *items[4:]), (turn, fork, saved, summary), strict=True):
        assert all(getattr(found, name) == getattr(written, name) for name in written.__struct_fields__)
    first, second = items[2:4]
    assert isinstance(first, MessageRecord)
    assert isinstance(second, MessageRecord)
    assert first.turn_id == "u1"
    assert second.message.parts == odd
    assert (second.message.role, second.message.metadata) == ("assistant", {"a": 1})
    assert second.message.created_at == message(1).created_at


def test_one_file_may_contain_several_threads() -> None:
    assert [len(items) for _, items in read([*block(message(0)), *block()])] == [2, 1]


def test_files_of_the_first_version_are_read() -> None:
    lines = [
        b'{"threadline":1,"thread":{"id":"t1","title":"Lisbon","system_prompt":"Be kind."}}\n',
        b'{"createdAt":"2026-11-15T12:00:00+00:00","message":{"id":"m0","role":"user","parts":[]}}\n',
    ]
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    ((thread, items),) = read([*lines, f'{{"end":{{"messages":1,"sha256":"{digest}"}}}}\n'.encode()])
    assert (thread.id, thread.title, thread.system_prompt, thread.updated_at) == ("t1", "Lisbon", "Be kind.", None)
    assert [type(item) for item in items] == [MessageRecord]


def changed(index: int, line: bytes) -> list[bytes]:
    lines = block(message(0), message(1))
    lines[index] = line
    return lines


@pytest.mark.parametrize(
    ("lines", "number", "reason"),
    [
        ([], 1, "empty"),
        (block(message(0))[:-1], 3, "cut short"),
        ([*block(message(0))[:-1], block(message(0))[-1][:-5]], 4, "cut short"),
        (changed(2, block(message(0))[2].replace(b"hi", b"ho")), 5, "SHA-256"),
        (block(message(0), message(1))[:3] + block(message(0), message(1))[4:], 4, "got 1"),
        (changed(3, block(message(0))[2]), 4, "must be unique"),
        (changed(1, b'{"message":1}\n'), 2, "`summary` or `end` line, got the keys 'message'"),
        (changed(0, b'{"message":{}}\n'), 1, "must be a `thread` line"),
        (changed(0, b'{"threadline":3,"thread":{}}\n'), 1, "format version must be 1 or 2, got '3'"),
        (changed(0, b'{"threadline":1,"thread":{"owner_id":"eve"}}\n'), 1, "owner_id"),
        (changed(0, b'{"threadline":1,"thread":{"updated_at":"2026-01-01T00:00:00Z"}}\n'), 1, "updated_at"),
        (changed(0, b'{"threadline":2,"thread":{"owner_id":"eve"}}\n'), 1, "owner_id"),
        (changed(0, b'{"threadline":2,"thread":{"updated_at":"2026-01-01T00:00:00"}}\n'), 1, "must have a time zone"),
        (changed(1, b'{"timeline":{"key":"1","parent":["0",0]}}\n'), 2, "must be one that came before, got '0'"),
        (changed(2, b'{"timeline":{"key":"0"}}\n'), 3, "key of its own"),
        (changed(2, b'{"timeline":{"key":"1","parent":["0",0]}}\n'), 3, "`seq` must be -1 to -1"),
        (changed(2, b'{"saved_point":{"name":"x","point":["0",9]}}\n'), 3, "`seq` must be -1 to -1"),
        (
            changed(
                1, b'{"turn":{"id":"a b","surface":"web","status":"executed","created_at":"2026-01-01T00:00:00Z"}}\n'
            ),
            2,
            "turn id must match",
        ),
        (changed(1, b'{"turn":{"id":"a","surface":"pager","status":"executed"}}\n'), 2, "`turn` is not valid"),
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
    thread = Thread(
        "t1", "ada", "k1", "l1", "Lisbon", True, None, None, None, None, {}, 2, 0, MOMENT, MOMENT, None, None
    )  # fmt: skip
    text = markdown_head(thread) + markdown_message(
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

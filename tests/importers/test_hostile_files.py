"""Files that lie, never end or grow without bound: refused with their name, in bounded memory, and the rest is read."""

from __future__ import annotations

import copy
import json
import os
import random
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.importers.conftest import FILES, SAMPLES
from threadline.core.history import History, MessageRecord
from threadline.importers.report import SourceReport
from threadline.importers.sources import SOURCES, detect, read_histories, source_files

pytestmark = pytest.mark.req("G-07")


def read(source: str, path: Path) -> tuple[list[History], SourceReport]:
    report = SourceReport()
    return list(read_histories(source, path, report)), report


def write_lines(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def said(uuid: str, parent: str | None, text: str = "hello") -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"type": "user"\n', "line 1 must be JSON"),
        (json.dumps(said("a", None)).encode() + b"\n\xff\xfe\n", "line 2 must be UTF-8, got byte 0xff"),
        (b"[1, 2]\n", "line 1 must be a JSON object, got an array"),
        (b"[" * 100_000 + b"\n", "line 1 nesting depth"),
        (b'{"a": ' * 5_000 + b"\n", "line 1 nesting depth"),
        (b'{"a": NaN}\n', "line 1 must be JSON: NaN"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(content)
    found, report = read("claude-code", path)
    assert found == []
    (fault,) = report.faults
    assert fault.startswith(f"{path}: ")
    assert reason in fault


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "session.jsonl", said("a", None))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"type": "user", "uu')
    (found,), report = read("claude-code", path)
    assert sum(isinstance(item, MessageRecord) for item in found.items) == 1
    assert report.faults == []


def test_loops_missing_parents_and_duplicate_ids(tmp_path: Path) -> None:
    loop = write_lines(tmp_path / "loop.jsonl", said("a", "b"), said("b", "a"), said("c", None))
    found, report = read("claude-code", loop)
    assert (found, report.fault_count) == ([], 1)
    assert "must not be its own ancestor" in report.faults[0]
    itself = write_lines(tmp_path / "itself.jsonl", {"type": "odd", "uuid": "a", "parentUuid": "a"}, said("b", "a"))
    assert "must not be its own ancestor" in read("claude-code", itself)[1].faults[0]
    lost = write_lines(tmp_path / "lost.jsonl", said("a", "nowhere"), said("b", "a"), said("b", "a", "again"))
    (history,), report = read("claude-code", lost)
    texts = [item.message.text for item in history.items if isinstance(item, MessageRecord)]
    assert texts == ["hello", "hello"]
    assert dict(report.notes) == {"messages whose parent is missing": 1, "duplicate ids": 1}


def test_a_long_chain_and_a_wide_tree_are_read(tmp_path: Path) -> None:
    chain = [said(f"m{n}", f"m{n - 1}" if n else None) for n in range(20_000)]
    wide = [said(f"w{n}", "m0") for n in range(2_000)]
    (found,), report = read("claude-code", write_lines(tmp_path / "deep.jsonl", *chain, *wide))
    assert sum(isinstance(item, MessageRecord) for item in found.items) == 22_000
    assert report.faults == []


def test_what_cannot_be_stored_is_replaced_and_what_is_too_long_is_cut(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s.jsonl", said("a", None, "nul \0 and half \ud800"), said("b", "a", "x" * 3_000_000))
    (found,), report = read("claude-code", path)
    first, second = (item.message.text for item in found.items if isinstance(item, MessageRecord))
    assert first == "nul \ufffd and half \ufffd"
    assert len(second) < 1_000_000
    assert "characters were left out" in second
    assert report.notes["messages shortened"] == 1


def test_only_regular_files_are_opened_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    (folder / "real").mkdir(parents=True)
    write_lines(folder / "real" / "session.jsonl", said("a", None))
    secret = write_lines(tmp_path / "secret.jsonl", said("b", None))
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "circle").symlink_to(folder)
    os.mkfifo(folder / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket.jsonl"))
        assert [path.name for path in source_files("claude-code", folder)] == ["session.jsonl"]
        assert detect(folder) == "claude-code"
        for name in ("pipe.jsonl", "socket.jsonl"):
            _, report = read("claude-code", folder / name)
            assert report.fault_count == 1, name
    for source in SOURCES:
        assert read(source, folder)[1].fault_count == 1, source
        assert read(source, tmp_path / "nothing")[1].fault_count == 1, source


def test_bombs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("conversations.json", "w") as file:
        for _ in range(80):
            file.write(b" " * (1 << 20))
    _, report = read("chatgpt", path)
    assert "more than a real export" in report.faults[0]
    path.write_bytes(path.read_bytes()[:-200])
    assert "is not a zip file" in read("chatgpt", path)[1].faults[0]


_LIMITED = """
import resource, sys
from pathlib import Path
from threadline.importers.report import SourceReport
from threadline.importers.sources import read_histories
resource.setrlimit(resource.RLIMIT_AS, (900 << 20, 900 << 20))
report = SourceReport()
print(len(list(read_histories(sys.argv[1], Path(sys.argv[2]), report))), report.faults)
"""


@pytest.mark.parametrize("source", ["claude-code", "codex", "openai", "chatgpt"])
def test_a_line_of_two_gigabytes_is_refused_in_bounded_memory(tmp_path: Path, source: str) -> None:
    path = tmp_path / ("conversations.json" if source == "chatgpt" else "rollout-session.jsonl")
    with path.open("wb") as file:
        file.write(b'["' if source == "chatgpt" else b'{"a": "')
        # A file with a hole takes no room on the disk.
        file.truncate(2 << 30)
    told = subprocess.run(
        [sys.executable, "-c", _LIMITED, source, str(path)], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("0 ["), told
    assert str(path) in told.stdout


def test_a_packed_session_is_read_and_a_packed_bomb_refused(tmp_path: Path) -> None:
    path = tmp_path / "rollout-x.jsonl.zst"
    path.write_bytes(zstandard.compress(FILES["codex"].read_bytes()))
    assert detect(path) == "codex"
    assert len(read("codex", path)[0]) == 1
    path.write_bytes(zstandard.compress(b"x" * (100 << 20)))
    assert "bytes of line 1" in read("codex", path)[1].faults[0]
    path.write_bytes(b"no zstd at all")
    assert "is not valid zstd" in read("codex", path)[1].faults[0]


def test_a_conversation_with_a_fault_does_not_keep_out_the_others(tmp_path: Path) -> None:
    (good, *_) = json.loads((SAMPLES / "conversations.json").read_text(encoding="utf-8"))
    looped = copy.deepcopy(good) | {"conversation_id": "looped"}
    looped["mapping"]["q1"]["parent"] = "a2b"
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"mapping": {}}, looped, 5, good]), encoding="utf-8")
    found, report = read("chatgpt", path)
    assert [history.origin for history in found] == [f"chatgpt:{good['conversation_id']}"]
    assert [fault.split(":")[1].strip() for fault in report.faults] == [
        "conversation 0",
        "conversation 1",
        "conversation 2",
    ]
    path.write_text(path.read_text(encoding="utf-8")[:-400], encoding="utf-8")
    assert "conversations.json" in read("chatgpt", path)[1].faults[-1]


ODD: list[Any] = [None, True, -1, 1e300, "", "\0", [], {}, [[]], {"type": 5}, "x" * 300, [None], {"": ""}]


@pytest.mark.parametrize("source", list(FILES))
def test_any_value_in_any_place_is_read_or_refused(source: str, tmp_path: Path) -> None:
    """Nothing but a fault in the report comes of it, whatever value stands where."""
    draw = random.Random(source)
    text = FILES[source].read_text(encoding="utf-8")
    is_lines = FILES[source].suffix == ".jsonl"
    path = tmp_path / FILES[source].name
    for _ in range(150):
        value = [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)
        for _ in range(draw.randint(1, 4)):
            _spoil(value, draw)
        lines = "".join(json.dumps(line) + "\n" for line in value) if is_lines else json.dumps(value)
        path.write_text(lines, encoding="utf-8")
        detect(path)
        read(source, path)


def _spoil(value: Any, draw: random.Random) -> None:
    while True:
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = draw.choice(places)
        inner = value[place]
        if not isinstance(inner, dict | list) or not inner or draw.random() < 0.15:
            value[place] = copy.deepcopy(draw.choice(ODD))
            return
        value = inner

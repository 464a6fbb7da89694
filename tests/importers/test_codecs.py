"""Every source as golden files: `python -m tests.importers.test_codecs` writes them again."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.importers.conftest import FILES, SAMPLES, make_llm_database
from threadline.core import parts as parts_
from threadline.core.history import History, MessageRecord
from threadline.importers.report import SourceReport
from threadline.importers.sources import detect, read_histories

pytestmark = pytest.mark.req("G-07")


def shown(source: str, path: Path) -> str:
    report = SourceReport()
    histories = [_history(each) for each in read_histories(source, path, report)]
    return json.dumps({"histories": histories, "report": report.to_json()}, indent=1, ensure_ascii=False) + "\n"


def _history(history: History) -> dict[str, Any]:
    items = [
        {
            "role": item.message.role,
            "id": item.message.id,
            "at": str(item.message.created_at),
            "model": (item.message.metadata or {}).get("model"),
            "parts": json.loads(parts_.encode(item.message.parts)),  # type: ignore[arg-type]  # never bytes here
        }
        if isinstance(item, MessageRecord)
        else {type(item).__name__: msgspec.to_builtins(item)}
        for item in history.items
    ]
    record = {key: value for key, value in msgspec.to_builtins(history.thread).items() if value not in (None, 0, {})}
    return {"origin": history.origin, "thread": record, "items": items}


def golden(source: str) -> Path:
    return SAMPLES / f"{source}.golden.json"


def test_a_source_becomes_the_golden_history(sample: tuple[str, Path]) -> None:
    source, path = sample
    assert shown(source, path) == golden(source).read_text(encoding="utf-8")


def test_a_source_is_recognised(sample: tuple[str, Path]) -> None:
    assert detect(sample[1]) == sample[0]


if __name__ == "__main__":
    for source, path in FILES.items():
        golden(source).write_text(shown(source, path), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        database = make_llm_database(Path(folder, "logs.db"))
        golden("llm").write_text(shown("llm", database), encoding="utf-8")

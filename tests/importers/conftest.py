"""Samples of every source, written for these tests in the forms that the programs use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from threadline.importers import chatgpt, claude_code, codex, llm_logs, message_list_files

SAMPLES = Path(__file__).with_name("samples")
FILES = {
    chatgpt.NAME: SAMPLES / "conversations.json",
    claude_code.NAME: SAMPLES / "claude-code.jsonl",
    codex.NAME: SAMPLES / "rollout-2026-05-01T12-00-00-0199.jsonl",
    message_list_files.UI_MESSAGES: SAMPLES / "uimessages.json",
    message_list_files.OPENAI: SAMPLES / "openai.json",
}


@pytest.fixture
def llm_database(tmp_path: Path) -> Path:
    return make_llm_database(tmp_path / "logs.db")


def make_llm_database(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript((SAMPLES / "llm-logs.sql").read_text(encoding="utf-8"))
    connection.close()
    return path


@pytest.fixture(params=[*FILES, llm_logs.NAME])
def sample(request: pytest.FixtureRequest, llm_database: Path) -> tuple[str, Path]:
    """The name of a source and a file of it."""
    name = str(request.param)
    return name, FILES.get(name, llm_database)

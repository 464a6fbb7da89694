"""Runs `threadline …` in this process, on a database per test."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from threadline.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("THREADLINE_DATABASE", "THREADLINE_SETTINGS", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    # A stub model answers what a test asks, and nothing else.
    monkeypatch.setenv("THREADLINE_TITLES__BY_MODEL", "false")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(home: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*words: str, stdin: str = "") -> Result:
        capfdbinary.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            code = main(words)
        except SystemExit as exc:
            code = int(exc.code or 0)
        out, err = capfdbinary.readouterr()
        return Result(code, out.decode(), err.decode())

    return run


@pytest.fixture
def thread_id(run: Run) -> str:
    """A thread of two turns."""
    first = run("chat", "-p", "calculate 6*7", "--json").json()
    run("chat", "--continue", "-p", "what did I say first?")
    return str(first["threadId"])

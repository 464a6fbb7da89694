"""Typed keyword arguments: a misspelled field is a type error, in the library, the client and the synchronous API."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """\
import threadline

async def check(ada: threadline.UserView, client: threadline.Client, me: threadline.SyncGateway) -> None:
    thread = await ada.create_thread()
    remote = await client.create_thread()
"""
RIGHT = (
    "await ada.create_thread(title='Trip', metadata={'a': 1}, model=None)",
    "await client.open_thread('key', title='Trip')",
    "(await thread.branch(at=1, title='x')).title",
    "await remote.update(archived=True)",
    "me.create_thread(title='x').messages(newest=3)",
)
WRONG = (
    "await ada.create_thread(titel='Trip')",
    "await client.create_thread(titel='Trip')",
    "me.create_thread(titel='Trip')",
    "await thread.branch(titel='Trip')",
    "await thread.update(title=3)",
)


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """mypy's error per call; one run for all of them, because a run takes seconds."""
    calls = (*RIGHT, *WRONG)
    program = tmp_path_factory.mktemp("typed") / "calls.py"
    program.write_text(PRELUDE + "".join(f"    {call}\n" for call in calls))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    first = PRELUDE.count("\n") + 1
    found = {int(line): text for line, text in re.findall(r"calls\.py:(\d+): error: (.*)", done.stdout)}
    return {call: found.pop(number) for number, call in enumerate(calls, start=first) if number in found}


@pytest.mark.parametrize("call", RIGHT)
def test_a_call_with_the_right_arguments_passes(errors: dict[str, str], call: str) -> None:
    assert call not in errors


@pytest.mark.parametrize("call", WRONG)
def test_a_misspelled_or_mistyped_field_is_a_type_error(errors: dict[str, str], call: str) -> None:
    assert re.search("titel|title", errors[call])

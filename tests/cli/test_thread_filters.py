"""Filters of `threadline threads list`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import threadline
from tests.cli.conftest import Run


async def make_threads(database: Path) -> None:
    async with threadline.open(database) as tl:
        me = tl.as_user()
        await me.create_thread(title="First", metadata={"project": "trips", "n": 3, "draft": True, "tags": ["summer"]})
        await me.create_thread(title="Second", metadata={"project": "trips", "n": "3", "draft": None})


@pytest.mark.req("G-10")
@pytest.mark.parametrize(
    ("options", "titles"),
    [
        (["--where", "project=trips"], ["Second", "First"]),
        (["--where", "project=trips", "--where", "n=3"], ["First"]),
        (["--where", 'n="3"'], ["Second"]),
        (["--where", "draft=true"], ["First"]),
        (["--where", "draft=null"], ["Second"]),
        (["--tag", "summer"], ["First"]),
        (["--tag", "summer", "--since", "1h"], ["First"]),
        (["--until", "1h"], []),
        (["--since", "2020-01-01", "--until", "2020-01-02T10:00Z"], []),
        (["--agent", "nobody"], []),
        (["--surface", "slack"], []),
    ],
)
def test_lists_are_filtered(run: Run, home: Path, options: list[str], titles: list[str]) -> None:
    asyncio.run(make_threads(home / "t.db"))
    listed = run("--database", str(home / "t.db"), "threads", "list", "--json", *options).json()
    assert [thread["title"] for thread in listed["threads"]] == titles


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--where", "project"], "--where must be KEY=VALUE, got 'project'"),
        (["--since", "soon"], "--since must be a time such as 2026-11-16, or how long ago such as 7d, got 'soon'"),
        (["--surface", "fax"], "`surface` must be one of"),
    ],
)
def test_a_wrong_filter_is_one_line(run: Run, options: list[str], fault: str) -> None:
    printed = run("threads", "list", *options)
    assert printed.code == 2
    assert fault in printed.err

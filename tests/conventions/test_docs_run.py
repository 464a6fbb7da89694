"""What the documentation shows is what happens, and its links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conventions.pages import FENCE, RUNNABLE, Block, Command, PageWrong, blocks, commands, is_shown, run_page
from tests.conventions.rules import ROOT
from tests.framework_packages import run_in_frameworks

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FRAMEWORK = re.compile(r"pip install 'threadline\[(adk|langchain|langgraph|openai-agents|pydantic-ai)\]'")
"""A page of `docs/adapters` that says this runs in the environment that has the frameworks."""
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a reader's own, who has set nothing up."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "THREADLINE_DATABASE", "THREADLINE_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_shows_runs(page: Path, reader: Path) -> None:
    if page.parent.name == "adapters" and FRAMEWORK.search(page.read_text(encoding="utf-8")):
        run_page_in_frameworks(page, reader)
    else:
        run_page(page, reader)


def run_page_in_frameworks(page: Path, reader: Path) -> None:
    code = (
        "import sys, pathlib; from tests.conventions.pages import run_page; run_page(*map(pathlib.Path, sys.argv[1:]))"
    )
    done = run_in_frameworks("-c", code, page, reader, seconds=300, folder=reader)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place) if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown renderer gives the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


NOT_RUN = {
    "git clone <this repository>": "there is no address yet; `make test` is what CI runs",
    "make ": "the targets are what CI runs",
    "sudo apt-get install": "needs root; .ci/run installs the same packages",
    ".venv/bin/threadline ": "the same commands without the folder run on other pages",
    "pip install 'threadline[": "nothing is published yet; test_release.py installs the wheel and serves with it",
    "curl ": "asks a platform or a homeserver; tests send the same requests to their fakes",
    "register_new_matrix_user ": "the tests of the Matrix bot register with their own Synapse",
    "THREADLINE_MATRIX__PASSWORD=": "needs a homeserver; the tests of the Matrix bot start it",
    "THREADLINE_TOKEN=": "needs a homeserver; the tests of the Matrix bot start it",
    "pg_dump ": "tests/stores/postgres/test_dump.py runs it between two clusters",
    "pg_dumpall ": "tests/stores/postgres/test_dump.py runs it between two clusters",
    "psql --file roles.sql": "tests/stores/postgres/test_dump.py runs it between two clusters",
    "createdb ": "tests/stores/postgres/test_dump.py runs it between two clusters",
    "pg_restore ": "tests/stores/postgres/test_dump.py runs it between two clusters",
}
"""Commands that pages show and `run_page` does not run, by how they begin, and why."""


def unrun_commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language in {"sh", "console"}:
                yield from ((f"{name_of(page)}:{block.line}", words) for words in _unrun(block))


def _unrun(block: Block) -> Iterator[str]:
    for line in block.text.replace("\\\n", " ").splitlines():
        words = line.removeprefix("$ ") if block.language == "console" else line
        is_command = bool(words.strip()) and (block.language == "sh" or line.startswith("$ "))
        if is_command and not RUNNABLE.match(words):
            yield words


@pytest.mark.req("K-10")
def test_every_command_of_a_page_runs_or_is_listed_with_the_reason() -> None:
    found = list(unrun_commands())
    assert [one for one in found if not one[1].startswith(tuple(NOT_RUN))] == []
    assert [begin for begin in NOT_RUN if not any(words.startswith(begin) for _, words in found)] == []


ONE_NAMESPACE = """
```python
import asyncio
from pathlib import Path
```

1. Blocks in lists are indented:

   ```python
   await asyncio.sleep(0)
   y = 1 + 1
   ```

```python
Path("out").write_text(str(y))
```
"""


def test_a_page_keeps_one_namespace_and_may_await(reader: Path) -> None:
    page = reader / "page.md"
    page.write_text(ONE_NAMESPACE)
    run_page(page, reader)
    assert (reader / "out").read_text() == "2"


def test_settings_that_a_page_shows_hold_from_there_on(reader: Path) -> None:
    page = reader / "page.md"
    page.write_text("```toml\n# threadline.toml\nno_such_key = 1\n```\n\n```sh\nthreadline threads list\n```\n")
    with pytest.raises(PageWrong, match="no_such_key"):
        run_page(page, reader)


def test_a_page_whose_code_fails_is_found_at_its_line(reader: Path) -> None:
    page = reader / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failed:
        run_page(page, reader)
    assert failed.traceback[-1].lineno == 4


def test_a_page_whose_command_fails_is_found(reader: Path) -> None:
    page = reader / "page.md"
    page.write_text("```sh\nthreadline no-such-verb\n```\n")
    with pytest.raises(PageWrong, match=r"page.md:2 `threadline no-such-verb` ends with"):
        run_page(page, reader)


def test_a_page_that_shows_other_output_is_found(reader: Path) -> None:
    page = reader / "page.md"
    page.write_text("```console\n$ threadline no-such-verb\nDone.\n```\n")
    with pytest.raises(PageWrong, match=r"shows\nDone\.\n\nbut prints"):
        run_page(page, reader)


def test_a_page_that_leaves_out_a_failure_is_found(reader: Path) -> None:
    page = reader / "page.md"
    page.write_text("```console\n$ threadline threads show nothing\n…\n```\n")
    with pytest.raises(PageWrong, match="ends with 3"):
        run_page(page, reader)
    page.write_text("```console\n$ threadline threads show nothing\nthreadline: thread 'nothing' not found\n```\n")
    run_page(page, reader)


def test_only_commands_of_threadline_run() -> None:
    block = Block("sh", "make test\nthreadline a \\\n  --b\necho hi | threadline c\necho hi | rm x\nthreadlines d\n", 1)
    assert list(commands(block)) == [Command("threadline a    --b", ""), Command("echo hi | threadline c", "")]


def test_what_a_page_pipes_into_a_command_reaches_it(reader: Path) -> None:
    page = reader / "page.md"
    page.write_text("```console\n$ printf '%s\\n' 'calculate 2*3' | threadline chat -p\n…6…\n```\n")
    run_page(page, reader)


def test_a_console_block_shows_what_its_commands_print() -> None:
    block = Block("console", "$ threadline a\none\ntwo\n$ make x\nthree\n$ threadline b\n", 1)
    assert list(commands(block)) == [Command("threadline a", "one\ntwo\n"), Command("threadline b", "")]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("Lisbon  4 messages", "Lisbon 4 messages\n", True),
        ("01m3x7w9k2f8q4v6t1z5y0r3a7 Lisbon", "01m3x7w9k2f8q4v6t1z5y0r3b8 Lisbon", True),
        ("2026-11-15 20:40 Lisbon", "2027-01-01 00:00 Lisbon", True),
        ("first\n…\nlast", "first\nand more\nand more\nlast\n", True),
        ("took 3 ms", "took 12.5 ms", True),
        ("Lisbon 4 messages", "Lisbon 5 messages", False),
        ("Lisbon", "Lisbon\nPorto", False),
    ],
)
def test_what_varies_from_run_to_run_may_differ_and_nothing_else(shown: str, printed: str, same: bool) -> None:
    assert is_shown(shown, printed) is same


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# The `page`\n[a](page.md#the-page) [b](#the-page) [c](gone.md) [d](#gone)\n```\n[e](x.md)\n```\n")
    assert list(broken_links(page)) == ["gone.md", "#gone"]

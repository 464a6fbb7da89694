"""Every store passes the suite that `threadline.testing` ships, and the suite quotes every sentence of the port."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from threadline import ports
from threadline.testing import conformance
from threadline.testing.conformance import suite
from threadline.testing.conformance.suite import *  # noqa: F403 - this is how a store author collects the suite

CONTRACTS = (ports.Transaction, ports.Store, ports.Watch)
NOT_FOR_A_TEST = {
    "Every operation, bound to one scope": "defines the class",
    "A session whose operations are stored together: see `Store.transact`": "defines the class",
    "Inbox and outbox": "says what the class is",
    "For periodic sweeps": "names the caller",
    "never reachable from a request": "is about who calls it",
    "For sweeps that run all the time: what they cost must not depend on how many tenants there are": "is the reason",
    "An announcement may be lost, so those sweep as well": "is advice to the caller",
    "A hint: read again": "is advice to the caller",
    "`work` may await only the operations of its Transaction, and is run again from the start after a temporary "
    "failure": "is the caller's part of the contract",
    "Costs the same at any length of the thread": "is measured in bench/",
    "Reads no database": "is about time",
    "Of a word that more messages contain than the store ranks, the newest are considered": "is a bound of each store",
    "commits of other processes, shortly after": "needs another process, and each store has its own mechanism",
}


def clauses(docstring: str) -> Iterator[str]:
    """The parts of a contract that a test can quote: sentences, cut at semicolons."""
    for clause in re.split(r"(?<=[.;]) ", " ".join(docstring.split())):
        yield clause.rstrip(".;")


def contract() -> list[str]:
    """Every clause of every docstring of the port."""
    classes = {cls for protocol in CONTRACTS for cls in protocol.__mro__ if cls.__module__.startswith(ports.__name__)}
    members = [member for cls in classes for member in (cls, *vars(cls).values()) if inspect.isroutine(member)]
    docstrings = [vars(cls).get("__doc__") for cls in classes] + [member.__doc__ for member in members]
    return sorted({clause for docstring in docstrings if docstring for clause in clauses(docstring)})


def quotes() -> str:
    """All that the suite's tests quote, as one text."""
    classes = [value for name, value in vars(suite).items() if name.startswith("Test")]
    tests = [test for cls in classes for name, test in vars(cls).items() if name.startswith("test_")]
    return "\n".join(" ".join((test.__doc__ or "").split()) for test in tests)


@pytest.mark.req("SX-05")
def test_the_suite_quotes_every_sentence_of_the_port() -> None:
    quoted = quotes()
    missing = [clause for clause in contract() if clause not in quoted and clause not in NOT_FOR_A_TEST]
    assert not missing, "no test quotes: " + " | ".join(missing)


def test_nothing_is_excused_that_the_port_does_not_say() -> None:
    assert set(NOT_FOR_A_TEST) - set(contract()) == set()


def test_every_class_of_tests_is_in_the_suite() -> None:
    written = {
        name
        for module_name, module in sys.modules.items()
        if module_name.startswith("threadline.testing.conformance.")
        for name, value in vars(module).items()
        if name.startswith("Test") and value.__module__ == module_name
    }
    assert written == {name for name in suite.__all__ if name.startswith("Test")}


def test_a_store_author_writes_one_fixture(tmp_path: Path) -> None:
    """The example in the suite's own docstring, with a real store in the place of MyStore."""
    example = textwrap.dedent("\n".join(re.findall(r"^(?: {4}.*)?$", conformance.__doc__ or "", re.MULTILINE)))
    imports = "import pytest\nfrom threadline.stores.sqlite.store import SqliteStore\n"
    author = imports + example.replace("MyStore.open(", 'SqliteStore.open(":memory:", ')
    (tmp_path / "test_my_store.py").write_text(author)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers = req\naddopts = --strict-markers\n")
    command = [sys.executable, "-m", "pytest", "-q", "-k", "TestSaving or TestLoading", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout
    assert re.search(r"1[0-9] passed", run.stdout)

"""The frameworks' own tests, from their source distributions on PyPI, as the lock pins them.

They run in the environment of the frameworks with a plugin that puts Threadline in the place of their store. Tests that
cannot apply are listed with the reason; a listed test that passes fails the run as an unlisted one that fails does.
"""

from __future__ import annotations

import os
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.framework_packages import run_in_frameworks
from tests.framework_sources import source_distribution
from tools.bootstrap import ROOT

_PLUGINS = ROOT / "tests" / "frameworks" / "plugins"


class Suite(NamedTuple):
    """`tests` are paths in the distribution, `inapplicable` names of test functions with the reason."""

    package: str
    plugin: str
    tests: tuple[str, ...]
    inapplicable: Mapping[str, str]


def run_suite(suite: Suite, variables: Mapping[str, str]) -> int:
    """Runs the suite; returns how many tests passed. AssertionError if the list of exceptions does not fit."""
    folder = source_distribution(suite.package)
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.xml"
        plain = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder, "-o", "asyncio_mode=auto")
        # A program of its own, because the folder and not this project is where its tests import from.
        done = run_in_frameworks(
            "-m", "pytest", *plain, "-p", suite.plugin, f"--junitxml={report}",
            *(folder / test for test in suite.tests),
            variables={**variables, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(_PLUGINS)])},
        )  # fmt: skip
        assert report.is_file(), done.stdout
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {_name(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
    passed = [case for case in cases if all(case.find(kind) is None for kind in ("failure", "error", "skipped"))]
    assert failed - suite.inapplicable.keys() == set(), done.stdout
    assert suite.inapplicable.keys() - failed == set(), "these pass, or are gone: take them off the list"
    return len(passed)


def _name(case: ElementTree.Element) -> str:
    return case.attrib["name"].partition("[")[0]

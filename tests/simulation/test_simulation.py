"""The simulation finds no violation, replays every seed exactly, and finds each planted defect.

It runs in Python processes of its own, because it replaces the clock of the process and needs a fixed hash seed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

import pytest

from tests.simulation.defects import DEFECTS

SEEDS = 20
SLOW_SEEDS = 1_000


def simulation(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@cache
def defects() -> dict[str, str]:
    return dict(line.split(": ", 1) for line in simulation("--defects").stdout.splitlines())


@pytest.mark.req("R-08")
def test_no_seed_violates_an_invariant(slow: bool) -> None:
    run = simulation("--seeds", f"1-{SLOW_SEEDS if slow else SEEDS}", "--jobs", "2")
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(kind in run.stdout for kind in ("crashes", "pauses", "clock jumps", "store errors", "platform faults"))


@pytest.mark.req("R-08")
def test_a_seed_replays_exactly() -> None:
    """Whatever the process ran before, and in which order."""
    runs = [simulation("--seeds", seeds).stdout for seeds in ("1-8", "5-8", "7-8")]
    digests = [re.findall(r"seed [78]: \d+ steps, digest \w+", run) for run in runs]
    assert len(digests[0]) == 2
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.req("R-08")
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_found(defect: str) -> None:
    assert defects()[defect].startswith("seed "), defects()

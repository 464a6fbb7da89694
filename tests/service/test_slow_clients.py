"""A thousand clients that never finish their request, against `threadline serve` with shipped settings and the usual
descriptor limit of 1,024."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

HALF = b"POST /api/v1/ai/chat HTTP/1.1\r\nhost: localhost\r\nx-more:"


@contextmanager
def served(tmp_path: Path, descriptors: int, soft: int | None = None) -> Iterator[tuple[str, Path]]:
    """The address of a service whose process may open so many descriptors, and its log."""
    limits = (soft or descriptors, descriptors)
    command = [sys.executable, "-m", "threadline", "serve", "--port", "0", "--database", str(tmp_path / "t.db")]
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "THREADLINE_SERVICE__LOG_FORMAT": "json"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),  # noqa: PLW1509
        )
    with process:
        try:
            assert process.stdout is not None
            found = re.search(r"on (http://\S+)$", process.stdout.readline())
            assert found, log.read_text()
            yield found[1], log
        finally:
            process.kill()


def half_open(url: str, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=30))
    client.sendall(HALF)
    return client


def health_seconds(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/healthz", timeout=30) as answer:
        assert answer.status == 200
    return time.perf_counter() - began


def troubles(log: Path, kind: str) -> int:
    return sum(f'"kind": "{kind}"' in line for line in log.read_text().splitlines())


@pytest.mark.req("R-03")
def test_a_thousand_half_sent_requests_do_not_disturb_others(tmp_path: Path) -> None:
    with served(tmp_path, 1_024) as (url, log), ExitStack() as stack:
        times = []
        for number in range(1_010):
            half_open(url, stack)
            if number % 50 == 0:
                times.append(health_seconds(url))
        times += [health_seconds(url) for _ in range(20)]
        # Generous, because the machine is shared: without limits every one of these waits until a slow client ends.
        assert max(times) < 5
        assert log.stat().st_size < 100_000
        assert troubles(log, "evicted") == 1


def test_the_process_uses_the_descriptors_that_the_system_allows(tmp_path: Path) -> None:
    with served(tmp_path, 1_024, soft=128) as (url, log), ExitStack() as stack:
        for _ in range(300):
            half_open(url, stack)
        assert health_seconds(url) < 30
        assert troubles(log, "evicted") == 0


@pytest.mark.req("R-03")
def test_without_descriptors_the_log_stays_short_and_the_service_recovers(tmp_path: Path) -> None:
    """So few that the database's files use up what connections leave."""
    with served(tmp_path, 40) as (url, log), ExitStack() as stack:
        for _ in range(80):
            half_open(url, stack)
        assert health_seconds(url) < 30
        assert log.stat().st_size < 100_000
        assert troubles(log, "accept_failed") <= 1

"""`threadline serve` with worker processes, and requests to it without the Python client."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

SECONDS = 30.0
QUICK = {"THREADLINE_SERVICE__RECOVERY_SECONDS": "0.2", "THREADLINE_SERVICE__LOG_FORMAT": "json"}


class Service(NamedTuple):
    url: str
    parent: subprocess.Popen[str]
    log: Path

    def pids(self) -> list[int]:
        """The pids of all workers so far, in the order they started."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line["pid"] for line in lines if "worker ready" in line.values()]


@contextmanager
def served(database: str, tmp_path: Path, workers: int = 2, **env: str) -> Iterator[Service]:
    command = [sys.executable, "-m", "threadline", "serve", "--port", "0", "--database", database]
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **QUICK, **env},
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"on (http://\S+)$", line)
            assert found, line + log.read_text()
            service = Service(found[1], process, log)
            eventually(lambda: workers == 1 or len(service.pids()) == workers)
            yield service
        finally:
            process.kill()


class Started(NamedTuple):
    process: subprocess.Popen[str]
    announcement: str
    log: Path

    @property
    def url(self) -> str:
        found = re.search(r"on (http://\S+)$", self.announcement)
        assert found, self.announcement
        return found[1]


@contextmanager
def started(log: Path, *command: str, **env: str) -> Iterator[Started]:
    """A process of `threadline`, once it has announced itself. Killed at the end."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "threadline", *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **env},
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield Started(process, line.strip(), log)
        finally:
            process.kill()


def eventually(holds: Callable[[], bool]) -> None:
    """Polls, because other processes send no notification, until a timeout."""
    ends = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends, "condition not met in time"
        time.sleep(0.02)


def is_streamed(database: str | Path, word: str) -> bool:
    """Whether the stream of a turn that holds this word is stored in the SQLite file."""
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return bool(list(connection.execute("SELECT 1 FROM turn_chunks WHERE instr(chunk, ?)", (word.encode(),))))


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return json.loads(answer.read())


def ask(service: Service, text: str, key: str = "key") -> Any:
    body = json.dumps({"id": key, "message": {"role": "user", "content": text}}).encode()
    request = urllib.request.Request(f"{service.url}/api/v1/ai/chat", body, {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=SECONDS)


def messages(service: Service, key: str = "key") -> list[tuple[str, str | None]]:
    found = get(f"{service.url}/api/v1/ai/threads/{key}")["messages"]
    return [(message["role"], message.get("metadata", {}).get("status")) for message in found]

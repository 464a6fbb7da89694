"""`threadline serve --workers`: real processes on one address, killed, hung up on and told to end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from threadline.cli.main import main

SECONDS = 30.0
QUICK = {"THREADLINE_SERVICE__RECOVERY_SECONDS": "0.2", "THREADLINE_SERVICE__LOG_FORMAT": "json"}


class Service(NamedTuple):
    url: str
    parent: subprocess.Popen[str]
    log: Path

    def pids(self) -> list[int]:
        """Of every worker that ever served, in the order of their beginning."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line["pid"] for line in lines if "worker serves" in line.values()]


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


def eventually(holds: Callable[[], bool]) -> None:
    """Other processes tell nobody when they are done: look again, for a bounded time."""
    ends = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < ends, "it never came about"
        time.sleep(0.02)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return json.loads(answer.read())


def ask(service: Service, text: str, key: str = "key") -> Any:
    body = json.dumps({"id": key, "message": {"role": "user", "content": text}}).encode()
    request = urllib.request.Request(f"{service.url}/api/v1/ai/chat", body, {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=SECONDS)


def begun(service: Service) -> Any:
    """A stream that has shown enough for some of it to be stored: a word comes every second, and what was shown goes
    to the store ten times a second."""
    stream = ask(service, "slow 20")
    words = 0
    while words < 3:
        words += b"text-delta" in stream.readline()
    return stream


def messages(service: Service, key: str = "key") -> list[tuple[str, str | None]]:
    found = get(f"{service.url}/api/v1/ai/threads/{key}")["messages"]
    return [(message["role"], message.get("metadata", {}).get("status")) for message in found]


@pytest.fixture
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    from threadline.testing.postgres import shared_server

    return str(tmp_path / "t.db") if request.param == "file" else await shared_server().create_database()


@pytest.mark.req("S1-15", "S1-16")
@pytest.mark.parametrize("address", ["file", "postgres"], indirect=True)
def test_a_worker_killed_in_mid_turn_leaves_a_thread_that_works(address: str, tmp_path: Path) -> None:
    with served(address, tmp_path, THREADLINE_SERVICE__LEASE_SECONDS="1.5") as service:
        victim, other = service.pids()
        # While the other stands still, the victim is the one that answers.
        os.kill(other, signal.SIGSTOP)
        stream = begun(service)
        os.kill(victim, signal.SIGKILL)
        os.kill(other, signal.SIGCONT)
        stream.close()
        # Its stream goes on until somebody has ended the turn.
        with urllib.request.urlopen(f"{service.url}/api/v1/ai/chat/key/stream", timeout=SECONDS) as resumed:
            assert resumed.read().endswith(b"data: [DONE]\n\n")
        assert messages(service) == [("user", None), ("assistant", "interrupted")]
        with ask(service, "how many turns?") as answer:
            assert b'"type":"finish"' in answer.read()
        assert [role for role, _ in messages(service)] == ["user", "assistant"] * 2
        eventually(lambda: len(service.pids()) == 3)
        assert victim not in service.pids()[1:]
        service.parent.send_signal(signal.SIGTERM)
        assert service.parent.wait(SECONDS) == 0


def test_workers_told_to_end_let_their_turns_end(tmp_path: Path) -> None:
    with served(str(tmp_path / "t.db"), tmp_path) as service:
        streams = [ask(service, "slow 1", key) for key in ("one", "two", "three")]
        for stream in streams:
            stream.readline()
        service.parent.send_signal(signal.SIGTERM)
        for stream in streams:
            assert b'"type":"finish"' in stream.read()
        assert service.parent.wait(SECONDS) == 0


def test_a_turn_that_outlives_its_grace_is_ended_then_with_what_was_shown(tmp_path: Path) -> None:
    database = str(tmp_path / "t.db")
    with served(database, tmp_path, THREADLINE_SERVICE__GRACE_SECONDS="1") as service:
        stream = begun(service)
        service.parent.send_signal(signal.SIGTERM)
        assert service.parent.wait(SECONDS) == 0
        assert "killing it" not in service.log.read_text()
        stream.close()
    with served(database, tmp_path, workers=1) as service:
        assert messages(service) == [("user", None), ("assistant", "interrupted")]


def test_a_second_signal_waits_for_nobody(tmp_path: Path) -> None:
    with served(str(tmp_path / "t.db"), tmp_path) as service:
        begun(service).close()
        service.parent.send_signal(signal.SIGTERM)
        eventually(lambda: is_refused(service))
        service.parent.send_signal(signal.SIGTERM)
        assert service.parent.wait(SECONDS) == 0
        assert "killing it" not in service.log.read_text()


def is_refused(service: Service) -> bool:
    """Whether nobody takes a request there any more."""
    try:
        with urllib.request.urlopen(f"{service.url}/healthz", timeout=0.5):
            return False
    except (urllib.error.URLError, OSError):
        return True


def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    with served(str(tmp_path / "t.db"), tmp_path) as service:
        host, port = service.url.removeprefix("http://").split(":")
        service.parent.kill()
        service.parent.wait(SECONDS)

        def is_free() -> bool:
            with socket.socket() as taking:
                taking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    taking.bind((host, int(port)))
                except OSError:
                    return False
                return True

        eventually(is_free)


def test_what_cannot_be_served_is_said_once_and_ends_the_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.db"
    wrong.write_text("this is no database, and long enough to be taken for one" * 100)
    assert main(["serve", "--port", "0", "--workers", "3", "--database", str(wrong)]) == 6
    assert capfd.readouterr().err.count("threadline: ") == 1
    assert main(["serve", "--port", "0", "--workers", "2", "--database", ":memory:"]) == 2
    assert main(["serve", "--port", "0", "--workers", "0", "--database", str(tmp_path / "t.db")]) == 2

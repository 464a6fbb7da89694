"""`threadline serve --workers`: real processes on one address, killed and stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.service.processes import SECONDS, Service, ask, eventually, get, messages, served
from threadline.cli.main import main


def begun(service: Service) -> Any:
    """A stream with enough output for some to be stored: a word comes every second, and output is stored ten times a
    second."""
    stream = ask(service, "slow 8")
    words = 0
    while words < 3:
        words += b"text-delta" in stream.readline()
    return stream


@pytest.mark.req("S1-15", "S1-16")
@pytest.mark.parametrize("address", ["file", "postgres"], indirect=True)
def test_a_thread_works_after_its_worker_was_killed_during_a_turn(address: str, tmp_path: Path) -> None:
    with served(address, tmp_path, THREADLINE_SERVICE__LEASE_SECONDS="1.5") as service:
        victim, other = service.pids()
        # While the other stands still, the victim is the one that answers.
        os.kill(other, signal.SIGSTOP)
        stream = begun(service)
        os.kill(victim, signal.SIGKILL)
        os.kill(other, signal.SIGCONT)
        stream.close()
        # Its stream continues: the worker that reads it takes the turn over.
        with urllib.request.urlopen(f"{service.url}/api/v1/ai/chat/key/stream", timeout=SECONDS) as resumed:
            assert resumed.read().endswith(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n')
        assert messages(service) == [("user", None), ("assistant", None)]
        with ask(service, "how many turns?") as answer:
            assert b'"type":"finish"' in answer.read()
        assert [role for role, _ in messages(service)] == ["user", "assistant"] * 2
        eventually(lambda: len(service.pids()) == 3)
        assert victim not in service.pids()[1:]
        service.parent.send_signal(signal.SIGTERM)
        assert service.parent.wait(SECONDS) == 0


def test_stopping_workers_let_their_turns_end(tmp_path: Path) -> None:
    with served(str(tmp_path / "t.db"), tmp_path) as service:
        streams = [ask(service, "slow 1", key) for key in ("one", "two", "three")]
        for stream in streams:
            stream.readline()
        service.parent.send_signal(signal.SIGTERM)
        for stream in streams:
            assert b'"type":"finish"' in stream.read()
        assert service.parent.wait(SECONDS) == 0


def test_a_second_signal_does_not_wait_for_turns(tmp_path: Path) -> None:
    with served(str(tmp_path / "t.db"), tmp_path) as service:
        begun(service).close()
        service.parent.send_signal(signal.SIGTERM)
        eventually(lambda: is_refused(service))
        service.parent.send_signal(signal.SIGTERM)
        assert service.parent.wait(SECONDS) == 0
        assert "killing it" not in service.log.read_text()


def is_refused(service: Service) -> bool:
    """Whether no process accepts connections there."""
    try:
        with urllib.request.urlopen(f"{service.url}/healthz", timeout=0.5):
            return False
    except (urllib.error.URLError, OSError):
        return True


def test_workers_stop_when_their_parent_is_killed(tmp_path: Path) -> None:
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


def test_a_wrong_setting_is_reported_once_and_ends_the_service(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.db"
    wrong.write_text("this is no database, and long enough to be taken for one" * 100)
    assert main(["serve", "--port", "0", "--workers", "3", "--database", str(wrong)]) == 6
    assert capfd.readouterr().err.count("threadline: ") == 1
    assert main(["serve", "--port", "0", "--workers", "2", "--database", ":memory:"]) == 2
    assert main(["serve", "--port", "0", "--workers", "0", "--database", str(tmp_path / "t.db")]) == 2


def test_one_scrape_has_the_metrics_of_all_workers_also_after_one_was_killed(tmp_path: Path) -> None:
    with served(str(tmp_path / "threads.sqlite3"), tmp_path) as service:
        for _ in range(20):
            get(f"{service.url}/healthz")
        assert sum(requests_of(service).values()) == 20
        assert workers_of(service) == {"0", "1"}
        os.kill(service.pids()[0], signal.SIGKILL)
        eventually(lambda: len(service.pids()) == 3)
        eventually(lambda: workers_of(service) == {"0", "1"})


def scrape(service: Service) -> str:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=SECONDS) as answer:
        text: str = answer.read().decode()
    assert len(re.findall(r"^# TYPE threadline_turns_running ", text, re.MULTILINE)) == 1
    return text


def workers_of(service: Service) -> set[str]:
    return set(re.findall(r'^threadline_turns_running{worker="(\d)"}', scrape(service), re.MULTILINE))


def requests_of(service: Service) -> dict[str, int]:
    line = r'^threadline_http_requests_total{worker="(\d)",method="GET",route="/healthz",status="200"} (\d+)$'
    return {worker: int(count) for worker, count in re.findall(line, scrape(service), re.MULTILINE)}

"""`threadline serve --role web` and `threadline worker`: real processes with shipped settings, stopped and killed."""

from __future__ import annotations

import json
import re
import signal
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.service.processes import SECONDS, Service, Started, ask, eventually, get, messages, started
from threadline.cli.main import main

BOTH = pytest.mark.parametrize("address", ["file", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the web process and its workers share, and other tests do not. The paths of sockets in it must be short."""
    with tempfile.TemporaryDirectory(prefix="tl-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


class Split(NamedTuple):
    """A web process and its workers."""

    web: Started
    workers: list[Started]

    @property
    def service(self) -> Service:
        return Service(self.web.url, self.web.process, self.web.log)

    def busy(self) -> Started:
        """The worker that runs the one turn that runs."""
        found: list[Started] = []

        def is_found() -> bool:
            found[:] = [each for each in self.workers if running(each) == 1]
            return len(found) == 1

        eventually(is_found)
        return found[0]


@contextmanager
def split(address: str, tmp_path: Path, workers: int = 2, **env: str) -> Iterator[Split]:
    with ExitStack() as stack:
        web = ("serve", "--role", "web", "--port", "0", "--database", address)
        opened = stack.enter_context(started(tmp_path / "web.log", *web, **env))
        yield Split(opened, [worker(stack, address, tmp_path, n, **env) for n in range(workers)])


def worker(stack: ExitStack, address: str, tmp_path: Path, number: int, **env: str) -> Started:
    command = ("worker", "--port", "0", "--database", address)
    return stack.enter_context(started(tmp_path / f"worker-{number}.log", *command, **env))


def scrape(of: Started) -> str:
    with urllib.request.urlopen(f"{of.url}/metrics", timeout=SECONDS) as answer:
        text: str = answer.read().decode()
    return text


def gauge(each: Started, name: str) -> float:
    """The value of the process itself. Its own samples come first."""
    found = re.search(rf"^{name}\S* ([\d.]+)$", scrape(each), re.MULTILINE)
    assert found
    return float(found[1])


def running(each: Started) -> int:
    """How many turns the process itself runs."""
    return int(gauge(each, "threadline_turns_running"))


def stop(each: Started) -> None:
    each.process.send_signal(signal.SIGTERM)
    assert each.process.wait(2 * SECONDS) == 0, each.log.read_text()


@pytest.mark.req("K-04")
@BOTH
def test_a_worker_runs_what_the_web_process_accepts(address: str, tmp_path: Path) -> None:
    with split(address, tmp_path) as process:
        for number in range(4):
            with ask(process.service, "hello", f"key-{number}") as stream:
                text = stream.read()
            assert b'"delta":' in text
            assert text.endswith(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n')
        ended = dict(
            re.findall(r'^threadline_turns_total{worker="([\w-]+)",.*} (\d+)$', scrape(process.web), re.MULTILINE)
        )
        assert sum(map(int, ended.values())) == 4
        assert set(ended) <= {"worker-0", "worker-1"}
        assert (
            re.findall(r'^threadline_turns_running{worker="([\w-]+)"}', scrape(process.web), re.MULTILINE)[0] == "web-0"
        )
        for each in (process.web, *process.workers):
            assert set(re.findall(r'threadline_turns_running{worker="([\w-]+)"}', scrape(each))) == {
                "web-0",
                "worker-0",
                "worker-1",
            }
        assert get(f"{process.workers[0].url}/readyz") == {"status": "ready"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{process.workers[0].url}/api/v1/ai/threads")


@pytest.mark.req("K-04")
@BOTH
def test_another_worker_continues_when_one_is_killed_in_the_middle_of_a_turn(address: str, tmp_path: Path) -> None:
    with split(address, tmp_path) as process, ask(process.service, "slow 3") as stream:
        process.busy().process.kill()
        # With shipped settings, where a lease lasts half a minute: the connection's timeout would be over before.
        assert stream.read().endswith(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n')
        assert messages(process.service) == [("user", None), ("assistant", None)]


@pytest.mark.req("K-04")
@BOTH
def test_a_worker_that_is_told_to_stop_hands_its_turn_over(address: str, tmp_path: Path) -> None:
    with split(address, tmp_path, THREADLINE_SERVICE__GRACE_SECONDS="0.1") as process:
        with ask(process.service, "slow 4") as stream:
            stop(process.busy())
            assert stream.read().endswith(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n')
        assert messages(process.service) == [("user", None), ("assistant", None)]


@pytest.mark.req("K-04")
@BOTH
def test_a_turn_continues_while_its_web_process_is_replaced(address: str, tmp_path: Path) -> None:
    web = ("serve", "--role", "web", "--port", "0", "--database", address)
    env = {"THREADLINE_SERVICE__GRACE_SECONDS": "0.1"}
    with (
        split(address, tmp_path, workers=1, **env) as process,
        started(tmp_path / "next.log", *web) as other,
    ):
        with ask(process.service, "slow 5"):
            process.busy()
            stop(process.web)
        with urllib.request.urlopen(f"{other.url}/api/v1/ai/chat/key/stream", timeout=SECONDS) as resumed:
            assert resumed.read().endswith(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n')
        assert messages(Service(other.url, other.process, other.log)) == [("user", None), ("assistant", None)]
        assert set(re.findall(r'threadline_turns_running{worker="([\w-]+)"}', scrape(other))) == {"web-1", "worker-0"}


@pytest.mark.req("K-04")
@BOTH
def test_a_turn_is_stopped_through_the_web_process(address: str, tmp_path: Path) -> None:
    with split(address, tmp_path, workers=1) as process, ask(process.service, "slow 60") as stream:
        process.busy()
        url = f"{process.web.url}/api/v1/ai/chat/key/stop"
        with urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=SECONDS) as answer:
            assert answer.status == 200
        assert b'"type":"abort"' in stream.read()
        eventually(lambda: running(process.workers[0]) == 0)


@pytest.mark.req("K-04")
@BOTH
def test_without_a_worker_turns_wait_and_are_then_refused(address: str, tmp_path: Path) -> None:
    with split(address, tmp_path, workers=0) as process, ExitStack() as stack:
        waiting = stack.enter_context(ask(process.service, "hello"))
        assert get(f"{process.web.url}/readyz") == {"status": "ready"}
        eventually(lambda: gauge(process.web, "threadline_channel_wait_seconds") > 10)
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(process.service, "and me?", "another")
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (503, "5")
        assert json.loads(refused.value.read())["code"] == "no_worker"
        worker(stack, address, tmp_path, 0)
        assert waiting.read().endswith(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n')
        eventually(lambda: gauge(process.web, "threadline_channel_wait_seconds") < 10)
        with ask(process.service, "and me?", "another") as stream:
            assert b'"type":"finish"' in stream.read()


@pytest.mark.req("K-04")
def test_a_turn_that_no_worker_takes_ends(tmp_path: Path) -> None:
    address, env = str(tmp_path / "t.db"), {"THREADLINE_SERVICE__HANDOVER_SECONDS": "1"}
    with split(address, tmp_path, workers=0, **env) as process, ask(process.service, "hello") as stream:
        assert b"no worker took the turn" in stream.read()


@pytest.mark.parametrize("command", [["worker"], ["serve", "--role", "web", "--port", "0"]])
def test_what_processes_with_roles_cannot_share_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*command, "--database", ":memory:"]) == 2
    assert "in-memory" in capsys.readouterr().err
    monkeypatch.setenv("THREADLINE_MATRIX__WITH_SERVICE", "true")
    assert main([*command, "--database", str(tmp_path / "t.db")]) == 2
    assert "threadline matrix run" in capsys.readouterr().err
    monkeypatch.setenv("THREADLINE_MATRIX__WITH_SERVICE", "false")
    monkeypatch.setenv("THREADLINE_SERVICE__HANDOVER_SECONDS", "0")
    if command[0] == "serve":
        assert main([*command, "--database", str(tmp_path / "t.db")]) == 2
        assert "handover_seconds" in capsys.readouterr().err

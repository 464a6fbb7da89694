"""A service or one of its workers is killed in the middle of an answer. Its clients retry at once and are answered.

With the lease and the sweeps as they are shipped: 30 and 10 seconds. The limits here are below that.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.service.processes import SECONDS, Service, eventually, get, is_streamed, messages, served
from tests.service.test_handover import WORDS, Reading, Teller, resumed

_QUICK = 15.0
SHIPPED = {"THREADLINE_SERVICE__RECOVERY_SECONDS": "10"}


def ask(service: Service, text: str, key: str | None = None) -> Any:
    body = json.dumps({"id": "key", "message": {"role": "user", "content": text}}).encode()
    headers = {"content-type": "application/json"} | ({} if key is None else {"idempotency-key": key})
    request = urllib.request.Request(f"{service.url}/api/v1/ai/chat", body, headers)
    return urllib.request.urlopen(request, timeout=SECONDS)


def begin(service: Service, reading: Reading, key: str | None = None) -> Any:
    """The stream of an answer whose first word was read."""
    stream = ask(service, "Tell me a story", key)
    reading.read(stream, until_a_word=True)
    return stream


def kill(service: Service) -> None:
    """The whole service, as a machine that runs out of memory does."""
    for pid in service.pids():
        os.kill(pid, signal.SIGKILL)
    service.parent.kill()
    service.parent.wait()


def texts(service: Service) -> list[tuple[str, str, str | None]]:
    found = get(f"{service.url}/api/v1/ai/threads/key")["messages"]
    said = ["".join(part.get("text", "") for part in message["parts"]) for message in found]
    roles = messages(service)
    return [(role, text, status) for (role, status), text in zip(roles, said, strict=True)]


STORY = ("assistant", "".join(WORDS), None)


@pytest.mark.req("R-01", "R-02", "S1-25")
@pytest.mark.parametrize("address", ["file", "postgres"], indirect=True)
def test_a_retry_with_the_same_key_right_after_a_restart_gets_the_whole_answer(address: str, tmp_path: Path) -> None:
    teller = Teller()
    with teller.telling(tmp_path) as env:
        with served(address, tmp_path, workers=1, **env, **SHIPPED) as service, begin(service, Reading(), "k1"):
            kill(service)
        with served(address, tmp_path, workers=1, **env, **SHIPPED) as service:
            started, again = time.monotonic(), Reading()
            with ask(service, "Tell me a story", "k1") as stream:
                again.read(stream)
            assert (again.is_done, again.words) == (True, list(WORDS))
            assert time.monotonic() - started < _QUICK
            assert texts(service) == [("user", "Tell me a story", None), STORY]
            assert teller.asked == 2


@pytest.mark.req("R-01", "R-02", "S1-26")
def test_a_reader_resumes_right_after_a_restart(tmp_path: Path) -> None:
    teller, reading, database = Teller(), Reading(), str(tmp_path / "t.db")
    with teller.telling(tmp_path) as env:
        with served(database, tmp_path, workers=1, **env, **SHIPPED) as service, begin(service, reading):
            kill(service)
        with served(database, tmp_path, workers=1, **env, **SHIPPED) as service:
            started = time.monotonic()
            with urllib.request.urlopen(resumed(service, reading), timeout=SECONDS) as stream:
                reading.read(stream)
            assert (reading.is_done, reading.words) == (True, list(WORDS))
            assert time.monotonic() - started < _QUICK
            assert texts(service) == [("user", "Tell me a story", None), STORY]


@pytest.mark.req("R-02", "S1-15")
def test_the_next_question_right_after_a_restart_is_answered_in_order(tmp_path: Path) -> None:
    teller, database = Teller(), str(tmp_path / "t.db")
    with teller.telling(tmp_path) as env:
        with served(database, tmp_path, workers=1, **env, **SHIPPED) as service, begin(service, Reading()):
            eventually(lambda: is_streamed(database, WORDS[0]))
            kill(service)
        with served(database, tmp_path, workers=1, **env, **SHIPPED) as service:
            started, reading = time.monotonic(), Reading()
            with ask(service, "And now?") as stream:
                reading.read(stream)
            assert (reading.is_done, reading.words) == (True, list(WORDS))
            assert time.monotonic() - started < _QUICK
            assert texts(service) == [
                ("user", "Tell me a story", None),
                ("assistant", WORDS[0], "interrupted"),
                ("user", "And now?", None),
                STORY,
            ]


@pytest.mark.req("R-01", "R-02", "S1-25")
def test_a_client_of_a_killed_worker_is_answered_by_another(tmp_path: Path) -> None:
    teller, database = Teller(), str(tmp_path / "t.db")
    with teller.telling(tmp_path) as env, served(database, tmp_path, workers=2, **env, **SHIPPED) as service:
        victim, other = service.pids()
        # While the other stands still, the victim is the one that answers.
        os.kill(other, signal.SIGSTOP)
        with begin(service, Reading(), "k1"):
            os.kill(other, signal.SIGCONT)
            os.kill(victim, signal.SIGKILL)
        started, again = time.monotonic(), Reading()
        with ask(service, "Tell me a story", "k1") as stream:
            again.read(stream)
        assert (again.is_done, again.words) == (True, list(WORDS))
        assert time.monotonic() - started < _QUICK
        assert texts(service) == [("user", "Tell me a story", None), STORY]
        eventually(lambda: len(service.pids()) == 3)


def post(service: Service, body: dict[str, Any]) -> str:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{service.url}/api/v1/ai/chat", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as stream:
        found: bytes = stream.read()
    return found.decode()


@pytest.mark.req("C-01", "R-01", "R-02")
@pytest.mark.parametrize("address", ["file", "postgres"], indirect=True)
def test_a_client_tool_that_waited_during_a_kill_is_answered_after_the_restart(address: str, tmp_path: Path) -> None:
    locate = {"description": "Where the user is.", "parameters": {"type": "object", "properties": {}}}
    question = {"role": "user", "parts": [{"type": "text", "text": "use locate"}]}
    with served(address, tmp_path, workers=1, **SHIPPED) as service:
        assert "tool-input-available" in post(service, {"id": "key", "message": question, "tools": {"locate": locate}})
        kill(service)
    with served(address, tmp_path, workers=1, **SHIPPED) as service:
        started = time.monotonic()
        reply = get(f"{service.url}/api/v1/ai/threads/key")["messages"][-1]
        (call,) = [part for part in reply["parts"] if part["type"] == "tool-locate"]
        assert call["state"] == "input-available"
        call |= {"state": "output-available", "output": "Bern"}
        streamed = post(service, {"id": "key", "messages": [reply], "messageId": reply["id"]})
        assert f'"messageId":"{reply["id"]}"' in streamed
        assert time.monotonic() - started < _QUICK
        (_, whole) = get(f"{service.url}/api/v1/ai/threads/key")["messages"]
        assert (whole["id"], whole["parts"][-1]["text"]) == (reply["id"], "The tool locate answered: Bern.")

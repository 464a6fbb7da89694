"""A deploy during an answer: one worker stops, another continues, and readers lose nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.conftest import OpenStore
from tests.scripted_agent import ScriptedAgent, make_threadline
from tests.service.conftest import SERVICE, held
from tests.service.processes import SECONDS, Service, ask, eventually, messages, served
from tests.service.running_service import CHAT, Client, client_of, serving, streamed_text
from threadline.client import RetryPolicy, connect
from threadline.core.events import Event, Finish, Restart, TextDelta
from threadline.settings import Settings
from threadline.testing.clock import ManualClock

RETRIES = RetryPolicy(connect_seconds=SECONDS, read_seconds=SECONDS, retry_seconds=(0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0))
WHOLE = 2 * SECONDS
"""For tests with several waits."""
WORDS = ("Once ", "upon ", "a time.")


async def cut_off(client: Client, gone: asyncio.Event) -> list[str]:
    """The frames that a reader gets before its connection breaks."""
    body = {"id": "key", "message": {"role": "user", "content": "Hi"}}
    text = ""
    try:
        async with client.http.stream("POST", CHAT, json=body) as answer:
            async for piece in answer.aiter_text():
                text += piece
                if "text-delta" in text:
                    gone.set()
    except httpx2.TransportError:
        return text.split("\n\n")[:-1]
    raise AssertionError("its stream came to an end")


@pytest.mark.req("S1-26", "S1-27")
@pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)
async def test_a_reader_disconnected_by_a_deploy_resumes_on_another_worker(
    open_store: OpenStore, clock: ManualClock, scripted_agent: ScriptedAgent, tenant_id: str
) -> None:
    settings = Settings(tenant=tenant_id, agent="scripted", service=SERVICE)
    one, other = [make_threadline(await open_store(), settings, clock, scripted_agent) for _ in range(2)]
    async with asyncio.timeout(WHOLE), serving(other) as second, held(scripted_agent) as gate:
        async with serving(one) as first:
            reader, shown = client_of(first.url), asyncio.Event()
            reading = asyncio.create_task(cut_off(reader, shown))
            await shown.wait()
            scripted_agent.waiting.clear()
        before = reader.frames(await reading)
        await reader.close()
        # Another worker has taken the turn over, and its agent waits too.
        await scripted_agent.waiting.wait()
        assert await second.messages("key") == [("user", "Hi")]
        late = client_of(second.url)
        second_reader = asyncio.create_task(late.resume("key", gate.set))
        answer = await second.http.get(f"{CHAT}/key/stream", headers={"last-event-id": reader.ids[-1]})
        after = second.chunks(answer)
        numbers = [int(each.partition(":")[2]) for each in (*reader.ids, *second.ids)]
        assert numbers == list(range(len(numbers)))
        assert streamed_text(before) == "Hello, "
        assert [chunk["type"] for chunk in after].index("data-again") < [streamed_text([each]) for each in after].index(
            "Hello, "
        )
        assert streamed_text(after) == "Hello, you."
        assert after[-1]["type"] == "finish"
        assert await second.messages("key") == [("user", "Hi"), ("assistant", "Hello, you.")]
        # A reader without a position does not get the discarded part.
        whole = await second_reader
        await late.close()
        assert streamed_text(whole) == "Hello, you."
        assert "data-again" not in [chunk["type"] for chunk in whole]


@pytest.mark.req("S1-28")
@pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)
async def test_a_turn_between_two_workers_can_be_stopped(
    open_store: OpenStore, clock: ManualClock, scripted_agent: ScriptedAgent, tenant_id: str
) -> None:
    never = msgspec.structs.replace(SERVICE, recovery_seconds=3600.0)
    settings = Settings(tenant=tenant_id, agent="scripted", service=never)
    one, other = [make_threadline(await open_store(), settings, clock, scripted_agent) for _ in range(2)]
    async with asyncio.timeout(WHOLE), serving(other) as second, held(scripted_agent):
        async with serving(one) as first:
            reader, shown = client_of(first.url), asyncio.Event()
            reading = asyncio.create_task(cut_off(reader, shown))
            await shown.wait()
        await reading
        await reader.close()
        assert (await second.http.post(f"{CHAT}/key/stop")).json() == {"ok": True, "stopped": 1}
        assert await second.messages("key") == [("user", "Hi"), ("assistant", "Hello, ")]


class Teller:
    """An agent behind HTTP, for tests that start processes. The first request gets one word and then waits until it is
    released; all others get the whole text immediately."""

    def __init__(self) -> None:
        self.asked = 0
        self._over = threading.Event()
        teller = self

        class Telling(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                teller.asked += 1
                is_first = teller.asked == 1
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for word in WORDS[:1] if is_first else WORDS:
                    self.wfile.write(b"data: %s\n\n" % json.dumps({"type": "text-delta", "delta": word}).encode())
                self.wfile.flush()
                if is_first:
                    teller._over.wait()
                else:
                    self.wfile.write(b"data: [DONE]\n\n")

            def log_message(self, *_: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Telling)

    @contextmanager
    def telling(self, tmp_path: Path) -> Iterator[dict[str, str]]:
        """Environment variables that make this the service's agent."""
        file = tmp_path / "teller.toml"
        url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        file.write_text(f'agent = "teller"\n[agents.teller]\nprovider = "remote"\nsettings = {{ url = "{url}" }}\n')
        serving = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield {"THREADLINE_SETTINGS": str(file), "THREADLINE_SERVICE__GRACE_SECONDS": "0"}
        finally:
            self._over.set()
            self._server.shutdown()
            serving.join()
            self._server.server_close()


class Reading:
    """What a reader has received: event ids, and the text since the last restart."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.words: list[str] = []
        self.is_done = False

    def line(self, line: bytes) -> None:
        if line.startswith(b"id: "):
            self.ids.append(line[4:].decode().strip())
        elif line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            if chunk["type"] == "data-again":
                self.words = []
            elif chunk["type"] == "text-delta":
                self.words.append(chunk["delta"])
        self.is_done = self.is_done or line.startswith(b"data: [DONE]")

    def read(self, stream: Any, *, until_a_word: bool = False) -> None:
        """Reads to the end, or until text and its event id have arrived. A broken stream ends too."""
        for line in iter(stream.readline, b""):
            self.line(line)
            if until_a_word and self.words and line == b"\n":
                return


def resumed(service: Service, reading: Reading) -> Any:
    headers = {"last-event-id": reading.ids[-1]}
    return urllib.request.Request(f"{service.url}/api/v1/ai/chat/key/stream", headers=headers)


@pytest.mark.req("S1-16", "S1-26")
@pytest.mark.parametrize("address", ["file", "postgres"], indirect=True)
def test_a_stopped_workers_turn_is_finished_by_another(address: str, tmp_path: Path) -> None:
    teller, reading = Teller(), Reading()
    with teller.telling(tmp_path) as env, served(address, tmp_path, workers=2, **env) as service:
        victim, other = service.pids()
        # While the other stands still, the victim is the one that answers.
        os.kill(other, signal.SIGSTOP)
        with ask(service, "Tell me a story") as stream:
            reading.read(stream, until_a_word=True)
            os.kill(other, signal.SIGCONT)
            os.kill(victim, signal.SIGTERM)
            reading.read(stream)
        assert not reading.is_done
        with urllib.request.urlopen(resumed(service, reading), timeout=SECONDS) as stream:
            reading.read(stream)
        assert (reading.is_done, reading.words) == (True, list(WORDS))
        numbers = [int(each.partition(":")[2]) for each in reading.ids]
        assert numbers == list(range(len(numbers)))
        assert messages(service) == [("user", None), ("assistant", None)]
        assert teller.asked == 2


@pytest.mark.req("S1-16", "S1-26")
def test_a_restarted_service_finishes_its_turns(tmp_path: Path) -> None:
    teller, reading, database = Teller(), Reading(), str(tmp_path / "t.db")
    with teller.telling(tmp_path) as env:
        with served(database, tmp_path, workers=1, **env) as service, ask(service, "Tell me a story") as stream:
            reading.read(stream, until_a_word=True)
            service.parent.send_signal(signal.SIGTERM)
            reading.read(stream)
            assert service.parent.wait(SECONDS) == 0
        assert not reading.is_done
        with served(database, tmp_path, workers=1, **env) as service:
            # Without any request.
            eventually(lambda: len(messages(service)) == 2)
            assert messages(service) == [("user", None), ("assistant", None)]
            with urllib.request.urlopen(resumed(service, reading), timeout=SECONDS) as stream:
                reading.read(stream)
    assert (reading.is_done, reading.words, teller.asked) == (True, list(WORDS), 2)


@pytest.mark.req("S1-16", "S1-26")
async def test_the_python_client_resumes_automatically(tmp_path: Path) -> None:
    teller, heard = Teller(), list[Event]()
    with teller.telling(tmp_path) as env, served(str(tmp_path / "t.db"), tmp_path, workers=2, **env) as service:
        victim, other = service.pids()
        os.kill(other, signal.SIGSTOP)
        async with asyncio.timeout(WHOLE), connect(service.url, retry=RETRIES) as client:
            async for event in (await client.create_thread()).ask("Tell me a story"):
                heard.append(event)
                if event == TextDelta(WORDS[0]) and Restart() not in heard:
                    os.kill(other, signal.SIGCONT)
                    os.kill(victim, signal.SIGTERM)
    told = [event for event in heard if isinstance(event, TextDelta | Restart | Finish)]
    assert told == [TextDelta(WORDS[0]), Restart(), *map(TextDelta, WORDS), Finish("stop")]


@pytest.mark.slow
@pytest.mark.req("R-01", "S1-16")
def test_no_deploy_delays_an_answer(tmp_path: Path) -> None:
    """Thirty deploys in the middle of an answer: each is continued by the next process at once, not after the lease."""
    database, delayed = str(tmp_path / "t.db"), list[float]()
    for number in range(30):
        teller, reading = Teller(), Reading()
        with teller.telling(tmp_path) as env:
            with served(database, tmp_path, workers=1, **env) as service:
                with ask(service, "Tell me a story", f"key-{number}") as stream:
                    reading.read(stream, until_a_word=True)
                    service.parent.send_signal(signal.SIGTERM)
                    reading.read(stream)
                assert service.parent.wait(SECONDS) == 0
            with served(database, tmp_path, workers=1, **env) as service:
                started = time.monotonic()
                eventually(lambda: len(messages(service, f"key-{number}")) == 2)  # noqa: B023 - called at once
                delayed.append(time.monotonic() - started)
    assert max(delayed) < 10

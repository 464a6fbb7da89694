"""Slow, large and many connections: each is bounded, and clients that send a whole request are served beside them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE, authenticate_by_header, held
from tests.service.running_service import CHAT, THREADS, Client, serving
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.service.auth.authentication import AuthenticateScope
from threadline.settings import ConnectionLimits, Settings

HALF = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-more:"
WHOLE = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /api/v1/ai/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
TROUBLES = "threadline_connection_troubles_total"


class Served:
    def __init__(self, threadline: Threadline, client: Client, sockets: AsyncExitStack) -> None:
        self.threadline = threadline
        self.client = client
        self._sockets = sockets

    async def connect(self, *sent: bytes) -> asyncio.StreamReader:
        """A connection on which this was sent. It is closed at the end of the test."""
        host, port = self.client.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._sockets.callback(writer.close)
        for piece in sent:
            writer.write(piece)
        return reader

    def open_requests(self) -> float:
        return self.threadline.metrics.value("threadline_http_requests_open")

    def troubles(self, kind: str) -> float:
        return self.threadline.metrics.value(TROUBLES, kind)


@asynccontextmanager
async def served(
    limits: ConnectionLimits | None = None,
    *,
    agent: ScriptedAgent | None = None,
    authenticate: AuthenticateScope | None = None,
    proxies: Sequence[str] = (),
) -> AsyncIterator[Served]:
    service = msgspec.structs.replace(SERVICE, connections=limits or ConnectionLimits(), proxies=tuple(proxies))
    settings = Settings(database=":memory:", agent="scripted", service=service)
    agents = {"scripted": make_agent(agent or ScriptedAgent())}
    async with (
        open_threadline(settings=settings, agents=agents) as threadline,
        serving(threadline, authenticate=authenticate) as client,
        AsyncExitStack() as sockets,
    ):
        yield Served(threadline, client, sockets)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - metrics cannot be awaited
            await asyncio.sleep(0.01)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """What was sent until the service closed the connection."""
    async with asyncio.timeout(30):
        return await reader.read()


@pytest.mark.req("R-03")
@pytest.mark.parametrize("sent", [HALF, WHOLE + HALF, POST[:20]])
async def test_a_head_that_does_not_arrive_in_time_ends_with_408(sent: bytes) -> None:
    async with served(ConnectionLimits(head_seconds=0.2)) as service:
        answer = await read_all(await service.connect(sent))
        assert b"HTTP/1.1 408" in answer
        assert b'"code":"request_timeout"' in answer
        assert service.troubles("head_timeout") == 1


@pytest.mark.req("R-03")
@pytest.mark.parametrize("sent", [b"", b"\r\n", WHOLE + b"\r\n"])
async def test_an_idle_connection_is_closed_without_an_error(sent: bytes) -> None:
    async with served(ConnectionLimits(head_seconds=0.2)) as service:
        answer = await read_all(await service.connect(sent))
        assert answer.count(b"HTTP/1.1") == (1 if WHOLE in sent else 0)
        assert service.troubles("head_timeout") == 0


@pytest.mark.req("R-03")
@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414, b"url_too_long"),
        (b"GET /" + b"x" * 1_000_000, 414, b"url_too_long"),
        (HALF + b"x" * 70_000 + b"\r\n\r\n", 431, b"head_too_large"),
        (HALF + b"x" * 5_000_000, 431, b"head_too_large"),
        (HALF + b"y\r\n" + b"x: y\r\n" * 200 + b"\r\n", 431, b"too_many_headers"),
        (HALF + b"y\r\n" + b"x: y\r\n" * 200_000, 431, b"too_many_headers"),
        (b"nonsense\r\n\r\n", 400, b"invalid_http"),
    ],
)
async def test_a_head_over_a_limit_is_refused_with_its_reason(head: bytes, status: int, code: bytes) -> None:
    async with served() as service:
        answer = await read_all(await service.connect(head))
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b'"code":"%s"' % code in answer
        assert (await service.client.http.get("/healthz")).status_code == 200


async def test_a_head_that_arrives_in_pieces_is_read() -> None:
    async with served() as service:
        reader = await service.connect(*(WHOLE[at : at + 1] for at in range(len(WHOLE))))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.req("R-03")
async def test_a_body_below_the_pace_ends_with_408() -> None:
    async with served(ConnectionLimits(body_seconds=0.2)) as service:
        answer = await read_all(await service.connect(POST + b"content-length: 1000\r\n\r\n{"))
        assert answer.startswith(b"HTTP/1.1 408")
        assert service.troubles("body_timeout") == 1


@pytest.mark.req("R-03")
async def test_a_slow_body_that_keeps_the_pace_is_accepted() -> None:
    """For longer than `body_seconds`: what has arrived buys time."""
    body = b'{"id": "key", "message": {"role": "user", "content": "' + b"x" * 4_000 + b'"}}'
    async with served(ConnectionLimits(body_seconds=0.5, body_bytes_per_second=500)) as service:
        host, port = service.client.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(POST + b"content-length: %d\r\n\r\n" % len(body))
        for at in range(0, len(body), 500):
            writer.write(body[at : at + 500])
            await asyncio.sleep(0.1)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.req("R-03")
async def test_half_sent_requests_give_way_to_whole_ones() -> None:
    async with served(ConnectionLimits(total=20)) as service:
        for _ in range(60):
            await service.connect(HALF)
            assert (await service.client.http.get("/healthz")).status_code == 200
        assert service.troubles("evicted") >= 40


@pytest.mark.req("R-03")
async def test_requests_that_are_served_are_not_closed_for_new_ones() -> None:
    agent = ScriptedAgent()
    async with served(ConnectionLimits(total=4), agent=agent) as service, held(agent) as gate:
        streams = [asyncio.create_task(service.client.ask("Hi", f"key{n}")) for n in range(4)]
        await until(lambda: service.open_requests() == 4)
        answer = await read_all(await service.connect(WHOLE))
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5" in answer
        assert b'"code":"overloaded"' in answer
        gate.set()
        for stream in streams:
            assert (await stream)[-1]["type"] == "finish"


@pytest.mark.req("R-03")
async def test_one_address_cannot_use_up_the_connections_of_all() -> None:
    async with served(ConnectionLimits(per_address=3), authenticate=authenticate_by_header) as service:
        for _ in range(9):
            await service.connect(HALF)
        # Its own half-sent requests gave way to the newest.
        assert service.troubles("evicted") == 6
        assert (await service.client.http.get("/healthz")).status_code == 200


@pytest.mark.req("R-03")
async def test_an_address_with_too_many_open_requests_gets_429() -> None:
    agent = ScriptedAgent()
    limits = ConnectionLimits(per_address=3)
    async with served(limits, agent=agent, authenticate=authenticate_by_header) as service, held(agent):
        body = b'{"message": {"role": "user", "content": "Hi"}}'
        request = POST + b"test-user: alice\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        for _ in range(3):
            assert (await (await service.connect(request)).readline()).startswith(b"HTTP/1.1 200")
        answer = await read_all(await service.connect(WHOLE))
        assert answer.startswith(b"HTTP/1.1 429")
        assert b'"code":"too_many_connections"' in answer


@pytest.mark.req("R-03")
async def test_clients_behind_a_trusted_proxy_are_limited_each() -> None:
    agent = ScriptedAgent()
    limits = ConnectionLimits(per_address=2)
    body = b'{"message": {"role": "user", "content": "Hi"}}'
    head = POST + b"test-user: alice\r\ncontent-length: %d\r\nx-forwarded-for: " % len(body)
    async with (
        served(limits, agent=agent, authenticate=authenticate_by_header, proxies=["127.0.0.1"]) as service,
        held(agent),
    ):
        for client in (b"203.0.113.1", b"203.0.113.2", b"203.0.113.3"):
            for status in (b"200", b"200", b"429"):
                reader = await service.connect(head + client + b"\r\n\r\n" + body)
                assert (await reader.readline()).startswith(b"HTTP/1.1 " + status)


@pytest.mark.req("R-03")
async def test_each_kind_of_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with served(ConnectionLimits(total=5)) as service:
        for _ in range(50):
            await service.connect(HALF)
        for _ in range(50):
            await read_all(await service.connect(b"nonsense\r\n\r\n"))
        assert service.troubles("invalid_http") == 50
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert sorted(vars(record)["kind"] for record in lines) == ["evicted", "invalid_http"]


@pytest.mark.req("R-03")
async def test_a_reader_that_stops_reading_is_disconnected() -> None:
    async with served(ConnectionLimits(write_seconds=0.2)) as service:
        await service.client.ask("Hi", "big")
        message = {"role": "user", "parts": [{"type": "text", "text": "x" * 900_000}]}
        for _ in range(8):
            answer = await service.client.http.post(f"{THREADS}/big/messages", json={"messages": [message]})
            assert answer.status_code == 200, answer.text
        # Its reader's buffer is full after a few bytes, and the kernel's soon afterwards.
        await service.connect(f"GET {THREADS}/big HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        await until(lambda: service.troubles("reader_stalled") == 1)


@pytest.mark.req("R-03")
async def test_a_client_that_leaves_during_its_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as service:
        host, port = service.client.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(POST + b"content-length: 1000\r\n\r\n{")
        await writer.drain()
        await until(lambda: service.open_requests() == 1)
        writer.close()
        await until(lambda: service.open_requests() == 0)
        assert service.threadline.metrics.value("threadline_http_requests_total", "POST", CHAT, "499") == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

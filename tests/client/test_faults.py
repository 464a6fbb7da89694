"""A network that loses answers and cuts streams: nothing is stored twice, and what was said arrives whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.client.conftest import IMPATIENT
from tests.ports import free_port
from tests.service.test_server import served
from threadline.client import Client, RetryPolicy, connect
from threadline.core.errors import InvalidInput, ServiceUnavailable
from threadline.core.events import TextDelta

SPENT = RetryPolicy(connect_seconds=30, read_seconds=30, retry_seconds=(0.0, 0.0))


class Wire:
    """A way to the service. Each number of the plan is how many bytes of answers it lets through before it cuts."""

    def __init__(self, service: str) -> None:
        parts = urlsplit(service)
        self._service = (parts.hostname, parts.port)
        self.plan: list[int] = []
        self.carrying: list[asyncio.Task[None]] = []
        self.requests: list[str] = []
        """The first line of each request."""

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = asyncio.current_task()
        assert mine is not None
        self.carrying.append(mine)
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._service)
        sending = asyncio.create_task(self._send(reader, upstream_writer))
        try:
            await self._receive(upstream_reader, writer)
        finally:
            sending.cancel()
            for each in (writer, upstream_writer):
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()

    async def _receive(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await upstream.read(1024):
                whole = not self.plan or len(piece) < self.plan[0]
                writer.write(piece if whole else piece[: self.plan[0]])
                await writer.drain()
                if not whole:
                    self.plan.pop(0)
                    break
                if self.plan:
                    self.plan[0] -= len(piece)

    async def _send(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                if piece.startswith((b"GET ", b"POST ")):
                    self.requests.append(piece.split(b" HTTP", 1)[0].decode())
                upstream.write(piece)
                await upstream.drain()
        # The client has closed its connection, so the service's is closed too.
        upstream.close()


@asynccontextmanager
async def wired(service: str) -> AsyncIterator[tuple[Wire, Client]]:
    wire = Wire(service)
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(f"http://127.0.0.1:{port}", retry=IMPATIENT) as client:
        yield wire, client
    server.close()
    await asyncio.gather(*wire.carrying)


@pytest.mark.req("S1-14", "S1-25", "S1-26")
@pytest.mark.parametrize("room", [1, 300, 700, 1000])
async def test_an_answer_that_is_lost_or_cut_doubles_nothing_and_loses_nothing(service: str, room: int) -> None:
    """Cut in the head, after the first frames, in the middle of one: it repeats the request or resumes the stream."""
    async with wired(service) as (wire, client):
        thread = await client.create_thread()
        wire.plan = [room, room, room]
        seen = [event.text async for event in thread.ask("Hello there") if isinstance(event, TextDelta)]
        assert wire.plan == []
        messages = await thread.messages()
        assert [message.role for message in messages] == ["user", "assistant"]
        assert "".join(seen) == messages[1].text


async def test_a_branch_whose_answer_was_lost_is_made_once(service: str) -> None:
    async with wired(service) as (wire, client):
        thread = await client.create_thread()
        await thread.ask("Hello")
        before = len((await client.threads(limit=100)).items)
        wire.plan = [1]
        branch = await thread.branch()
        assert wire.plan == []
        assert branch.info is not None
        assert branch.info.message_count == 2
        assert len((await client.threads(limit=100)).items) == before + 1


async def test_a_move_whose_answer_is_lost_is_made_once(service: str) -> None:
    async with wired(service) as (wire, client):
        thread = await client.create_thread()
        for question in ("One", "Two", "Three"):
            await thread.ask(question)
        await thread.save("here")
        wire.requests, wire.plan = [], [1]
        await thread.undo()
        assert wire.requests == [f"POST /api/v1/ai/threads/{thread.id}/undo"] * 2
        assert thread.info is not None
        assert thread.info.message_count == 4
        wire.requests, wire.plan = [], [1]
        await thread.load("here")
        assert wire.requests == [f"POST /api/v1/ai/threads/{thread.id}/load"] * 2
        assert len(await thread.timelines()) == 3


@pytest.mark.parametrize("key", [None, "lost-key"])
async def test_a_thread_whose_answer_was_lost_is_created_once(service: str, key: str | None) -> None:
    async with wired(service) as (wire, client):
        wire.plan = [1]
        thread = await client.create_thread(title=f"Lost {key}", state_key=key)
        assert wire.plan == []
        assert [each.id for each in await client.threads() if each.title == f"Lost {key}"] == [thread.id]


async def test_an_append_whose_answer_is_lost_is_stored_once(service: str) -> None:
    async with wired(service) as (wire, client):
        thread = await client.create_thread()
        wire.plan = [1]
        assert (await thread.append("One")).message_count == 1
        assert wire.plan == []
        assert len(await thread.messages()) == 1


async def test_an_import_whose_answer_is_lost_is_repeated_and_stored_once(service: str) -> None:
    async with wired(service) as (wire, client):
        thread = await client.create_thread()
        await thread.ask("Taken in once")
        lines = b"".join([piece async for piece in thread.export()])
        await thread.purge()
        wire.requests, wire.plan = [], [1]
        assert [each.title for each in await client.import_threads(lines)] == ["Taken in once"]
        assert wire.requests == ["POST /api/v1/ai/threads/import"] * 2
        assert [each.title for each in (await client.threads()).items].count("Taken in once") == 1


@pytest.mark.slow
async def test_a_service_that_is_restarted_in_the_middle_of_a_stream_is_read_to_the_end(tmp_path: Path) -> None:
    """The reply of a process that died is ended by the next one, and its reader is told so, without a doubled word."""
    database = tmp_path / "t.db"
    with served(database) as (url, process):
        port = urlsplit(url).port
        async with connect(url, retry=IMPATIENT) as client:
            thread = await client.create_thread(state_key="key")
            events = aiter(thread.ask("slow 60"))
            words = [(await anext(events)) for _ in range(3)]
            process.kill()
            process.wait()
            with served(database, port=port):
                rest = [event async for event in events]
                messages = await thread.messages()
    printed = "".join(event.text for event in (*words, *rest) if isinstance(event, TextDelta))
    assert messages[1].metadata == {"status": "interrupted"}
    # What it said in its last tenth of a second was shown and not stored.
    assert printed.startswith(messages[1].text)


async def test_an_unreachable_service_is_named_in_the_error() -> None:
    port = free_port()
    message = f"^the service at http://127.0.0.1:{port} cannot be reached$"
    async with connect(f"http://ada:secret@127.0.0.1:{port}/below", retry=SPENT) as client:
        with pytest.raises(ServiceUnavailable, match=message):
            await client.threads()
        with pytest.raises(ServiceUnavailable, match=message):
            await (await client.create_thread()).ask("Hello")


@pytest.mark.parametrize("answer", [b"nonsense", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", b""])
async def test_something_else_that_answers_is_no_service(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(f"http://127.0.0.1:{port}", retry=SPENT) as client:
        with pytest.raises(ServiceUnavailable):
            await client.threads()
        with pytest.raises(ServiceUnavailable):
            await (await client.create_thread()).ask("Hello")
    server.close()


async def test_the_token_goes_along_and_a_busy_service_is_asked_again() -> None:
    heads: list[bytes] = []
    busy = b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    body = b'{"threads":[]}'
    fine = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(busy if len(heads) == 1 else fine)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(f"http://127.0.0.1:{port}", token="tl_secret", retry=SPENT) as client:
        assert (await client.threads()).items == ()
    assert [b"authorization: bearer tl_secret" in head.lower() for head in heads] == [True, True]
    server.close()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput):
        connect("localhost:8300")

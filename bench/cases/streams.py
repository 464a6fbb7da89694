"""Streams over HTTP: what it costs to keep very many open, how long a word takes to all of them, and many readers
that reconnect at the same time.

All of them read one turn, from one process of Threadline. The client is a process of its own and reads by hand.
"""

from __future__ import annotations

import asyncio
import re
import resource
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import urlsplit

import msgspec

from bench.arena import Arena
from bench.budgets import OURS, RESUME, RESUME_P99, STREAMS_DELAY, STREAMS_MEMORY, STREAMS_MEMORY_EACH
from bench.contenders.ours import place_for_ours
from bench.http_client import Connection, request
from bench.http_servers import ServerOrder, ServerProcess
from bench.measure import Samples
from bench.results import Row

STREAM = request("GET", "/api/v1/ai/chat/key/stream")
SPOKEN = re.compile(rb"<(\d+\.\d+)>")
WORDS = 10
_AT_ONCE = 200
_PATIENCE_SECONDS = 120.0


async def idle(arena: Arena) -> list[Row]:
    """1,000 and 10,000 readers of a turn that says nothing: the server's memory. Then it says a word: the time until
    each has it."""
    rows: list[Row] = []
    for count in arena.sized((1_000, 10_000), (1_000,)):
        async with _serving(arena) as server:
            before = server.megabytes
            async with Readers(server.address, count) as readers:
                held = server.megabytes
                delays = [delay for _ in range(WORDS) for delay in await readers.word_to_all(server)]
        at = f"{count:,} streams"
        rows.append(Row(STREAMS_MEMORY.name, OURS, "MB", held, at=at))
        rows.append(Row(STREAMS_MEMORY_EACH.name, OURS, "kB", (held - before) * 1e3 / count, at=at))
        samples = Samples([delays])
        rows.append(Row(STREAMS_DELAY.name, OURS, "ms", samples.p99 * 1e3, at=at, samples=len(samples)))
    return rows


async def storm(arena: Arena) -> list[Row]:
    """Readers that lost their connection and reconnect at the same time to a turn of 1,000 words: how many are
    served in a second, and how long the slowest of a hundred waits for all of it."""
    count, words = arena.sized(1_000, 200), 1_000
    async with _serving(arena) as server:
        server.say(words)
        first = await Connection.open(server.address)
        await first.begin(STREAM)
        await _read_words(first, words)
        started = time.monotonic()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            taken = await asyncio.gather(*(_resumed(server.address, words) for _ in range(count)))
        seconds = time.monotonic() - started
        await first.close()
    samples = Samples([taken])
    at = f"{count:,} readers, {words:,} words each"
    return [
        Row(RESUME.name, OURS, "readers/s", count / seconds, at=at),
        Row(RESUME_P99.name, OURS, "ms", samples.p99 * 1e3, at=at, samples=len(samples)),
    ]


@asynccontextmanager
async def _serving(arena: Arena) -> AsyncIterator[ServerProcess]:
    """A server with a turn that runs and waits."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with ServerProcess(ServerOrder("ours", await place_for_ours(arena))) as server:
        message = {"role": "user", "parts": [{"type": "text", "text": "Wait."}]}
        body = msgspec.json.encode({"id": "key", "agentId": "waiting", "message": message})
        asking = await Connection.open(server.address)
        await asking.begin(request("POST", "/api/v1/ai/chat", body))
        await asking.reader.readuntil(b"ready ")
        yield server
        server.say(0)
        await asking.close()


class Readers:
    """Very many connections in one plain loop over a poll, because a task for each would be slower than the server."""

    def __init__(self, address: str, count: int) -> None:
        place = urlsplit(address)
        self._place = (place.hostname, place.port)
        self._count = count
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._sockets.values():
            each.close()
        self._poll.close()

    async def word_to_all(self, server: ServerProcess) -> list[float]:
        """How long a word takes to each of them."""
        hearing = asyncio.create_task(asyncio.to_thread(self._hear))
        server.say()
        return await hearing

    def _open(self) -> None:
        for _ in range(self._count):
            opened = socket.create_connection(self._place)
            opened.sendall(STREAM)
            self._sockets[opened.fileno()] = opened
            self._poll.register(opened, select.EPOLLIN)
            if len(self._sockets) % _AT_ONCE == 0:
                self._until(b"ready ", _AT_ONCE)
        self._until(b"ready ", self._count % _AT_ONCE)

    def _until(self, mark: bytes, count: int) -> None:
        """Until so many of them have been sent the mark."""
        seen: set[int] = set()
        for file, data in self._arriving(lambda: len(seen) < count):
            if mark in data:
                seen.add(file)

    def _hear(self) -> list[float]:
        delays: list[float] = []
        for _, data in self._arriving(lambda: len(delays) < self._count):
            if word := SPOKEN.search(data):
                delays.append(time.monotonic() - float(word[1]))
        return delays

    def _arriving(self, wanted: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        until = time.monotonic() + _PATIENCE_SECONDS
        while wanted():
            if time.monotonic() > until:
                raise TimeoutError("the readers were not all served")
            for file, _ in self._poll.poll(1.0):
                yield file, self._sockets[file].recv(65_536)


async def _resumed(address: str, words: int) -> float:
    started = time.monotonic()
    connection = await Connection.open(address)
    await connection.begin(STREAM)
    await _read_words(connection, words)
    await connection.close()
    return time.monotonic() - started


async def _read_words(connection: Connection, words: int) -> None:
    for _ in range(words):
        await connection.reader.readuntil(b">")

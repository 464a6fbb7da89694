"""Streams over HTTP: what it costs to keep very many open, how long a word takes to all of them, and a storm of readers
that come back at once.

All of them read one turn, from one process of Threadline. The client is a process of its own and reads by hand.
"""

from __future__ import annotations

import asyncio
import re
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
            readers = await _opened(server.address, count)
            held = server.megabytes
            delays = [delay for _ in range(WORDS) for delay in await _word_to_all(server, readers)]
            for reader in readers:
                await reader.close()
        at = f"{count:,} streams"
        rows.append(Row(STREAMS_MEMORY.name, OURS, "MB", held, at=at))
        rows.append(Row(STREAMS_MEMORY_EACH.name, OURS, "kB", (held - before) * 1e3 / count, at=at))
        samples = Samples([delays])
        rows.append(Row(STREAMS_DELAY.name, OURS, "ms", samples.p99 * 1e3, at=at, samples=len(samples)))
    return rows


async def storm(arena: Arena) -> list[Row]:
    """Readers that lost their connection and come back at once, to a turn that has said 1,000 words: how many are
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


async def _opened(address: str, count: int) -> list[Connection]:
    readers: list[Connection] = []
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while len(readers) < count:
            readers += await asyncio.gather(*(_reader(address) for _ in range(min(_AT_ONCE, count - len(readers)))))
    return readers


async def _reader(address: str) -> Connection:
    connection = await Connection.open(address)
    await connection.begin(STREAM)
    await connection.reader.readuntil(b"ready ")
    return connection


async def _word_to_all(server: ServerProcess, readers: list[Connection]) -> list[float]:
    server.say()
    async with asyncio.timeout(_PATIENCE_SECONDS):
        return await asyncio.gather(*(_delay(reader) for reader in readers))


async def _delay(reader: Connection) -> float:
    word = SPOKEN.search(await reader.reader.readuntil(b">"))
    assert word is not None
    return time.monotonic() - float(word[1])


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

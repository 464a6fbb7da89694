"""The load on an HTTP server: connections that stay open, each asking again as soon as it is answered.

Bytes are written and read by hand, so that what is measured is the server; the same client asks every contender.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

_LARGEST = 2**26
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_PATIENCE_SECONDS = 60.0


class Load(NamedTuple):
    """What came of one round: how long it took, and each answer's time."""

    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> Connection:
        place = urlsplit(address)
        assert place.hostname is not None
        return cls(*await asyncio.open_connection(place.hostname, place.port, limit=_LARGEST))

    async def ask(self, request: bytes) -> bytes:
        """The whole body of the answer. RuntimeError for one that is not 200."""
        head = await self.begin(request)
        if b"\r\ntransfer-encoding: chunked" in head:
            return await self.reader.readuntil(_LAST_CHUNK)
        length = head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        return await self.reader.readexactly(int(length))

    async def begin(self, request: bytes) -> bytes:
        """Only the head of the answer, in small letters; its body can be read from `reader`."""
        self._writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"the server answered {head[:200]!r}")
        return head

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def load(address: str, asking: Callable[[], bytes], *, connections: int, requests: int) -> Load:
    """So many requests in all, over so many connections at once."""
    opened = [await Connection.open(address) for _ in range(connections)]
    latencies: list[float] = []
    started = time.perf_counter()
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await asyncio.gather(*(_keep_asking(each, asking, requests // connections, latencies) for each in opened))
    seconds = time.perf_counter() - started
    for each in opened:
        await each.close()
    return Load(seconds, latencies)


async def _keep_asking(connection: Connection, asking: Callable[[], bytes], times: int, latencies: list[float]) -> None:
    for _ in range(times):
        started = time.perf_counter()
        await connection.ask(asking())
        latencies.append(time.perf_counter() - started)

"""A server in a process of its own: `python -m bench.http_servers ORDER` prints its address and serves until its end.

Threadline is served as `threadline serve` does it. Beside the rehearsal agent there is one that waits: it speaks when a
line comes on standard input, and says when that was, by the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Self

import msgspec
from starlette.types import ASGIApp

import threadline
from bench.contenders.bare_http import PostgresTables, SqliteTables, Tables, bare_app
from bench.places import ROOT
from threadline.core.events import Event, TextDelta
from threadline.core.prompts import Prompt
from threadline.ports import AgentServices
from threadline.service.app import build_app
from threadline.service.process.logs import configure
from threadline.service.process.server import Server, address_of, listen, reduce_gc_pauses
from threadline.settings import Settings

_START_SECONDS = 60.0


class ServerOrder(msgspec.Struct, frozen=True):
    kind: Literal["ours", "workers", "bare"]
    place: str
    deltas: list[str] = []


class Waiting:
    """Says a first word, and another each time it is told to."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[int] = asyncio.Queue()

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        yield TextDelta("ready ")
        while (words := await self.told.get()) > 0:
            for _ in range(words):
                yield TextDelta(f"<{time.monotonic()}>")
                await asyncio.sleep(0)


class ServerProcess:
    """Such a process, as a case sees it."""

    def __init__(self, order: ServerOrder) -> None:
        self._order = order
        self.address = ""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *_words(self._order)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # The log of `threadline serve` has a line for each request.
            stderr=asyncio.subprocess.DEVNULL if self._order.kind == "workers" else None,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _START_SECONDS)
        if not line:
            raise RuntimeError("a server ended before it served; its error is above")
        self.address = line.decode().split()[-1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        await self._process.wait()

    def say(self, words: int = 1) -> None:
        """The waiting agent says so many words; 0 ends its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % words)

    @property
    def megabytes(self) -> float:
        """What the process holds in memory now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * 4096 / 1e6


def _words(order: ServerOrder) -> list[str]:
    if order.kind == "workers":
        return ["threadline", "serve", "--workers", "2", "--port", "0", "--database", order.place]
    return ["bench.http_servers", msgspec.json.encode(order).decode()]


async def run(order: ServerOrder) -> None:
    agent = Waiting()
    async with _app(order, agent) as app:
        listening = listen("127.0.0.1", 0)
        server = Server(app, grace_seconds=1)
        told = asyncio.create_task(_listen_to_orders(agent))
        sys.stdout.write(address_of(listening) + "\n")
        sys.stdout.flush()
        reduce_gc_pauses()
        await server.serve(sockets=[listening])
        told.cancel()


@asynccontextmanager
async def _app(order: ServerOrder, agent: Waiting) -> AsyncIterator[ASGIApp]:
    if order.kind == "ours":
        settings = Settings(database=order.place)
        async with threadline.open(settings=settings, agents={"waiting": agent}) as opened:
            yield build_app(opened)
    else:
        tables = await open_tables(order.place)
        yield bare_app(tables, order.deltas)
        await tables.close()


async def open_tables(place: str, *, create: bool = False) -> Tables:
    if place.startswith("postgresql:"):
        return await PostgresTables.open(place, create=create)
    return SqliteTables(Path(place), create=create)


async def _listen_to_orders(agent: Waiting) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        agent.told.put_nowait(int(line))


if __name__ == "__main__":
    # Every request is logged, as `threadline serve` does; the log is discarded.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        configure("json", nowhere)
        asyncio.run(run(msgspec.json.decode(sys.argv[1], type=ServerOrder)))

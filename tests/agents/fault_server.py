"""A server that misbehaves as scripted: slow, truncated, silent or unreachable."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

Script: TypeAlias = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: Any


class FaultServer:
    """Plays one script per request, the last one for all further requests. `requests` contains what was received."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.requests: list[Request] = []
        self.url = ""
        self.closed = asyncio.Event()
        """Set when a client has gone away while it was being answered."""

    def will(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append(Request(head[0], headers, json.loads(body) if body else None))
            script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
            if isinstance(script, bytes):
                writer.write(script)
                await writer.drain()
            else:
                gone = asyncio.ensure_future(reader.read())
                playing = asyncio.ensure_future(script(writer))
                await asyncio.wait({gone, playing}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    self.closed.set()
                for task in (gone, playing):
                    task.cancel()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def faulty() -> AsyncIterator[FaultServer]:
    server = FaultServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


def answer(status: int, body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def stream_head() -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def sse(*payloads: Any, named: bool = False) -> list[bytes]:
    """The frames of a stream: strings unchanged, everything else as JSON."""
    return [_frame(payload, named=named) for payload in payloads]


def _frame(payload: Any, *, named: bool) -> bytes:
    data = payload if isinstance(payload, str) else json.dumps(payload)
    name = f"event: {payload['type']}\n" if named and isinstance(payload, dict) else ""
    return f"{name}data: {data}\n\n".encode()


def streamed(*frames: bytes, whole: bool = True) -> bytes:
    """A complete response of these frames; without `whole` the connection closes before its end."""
    return stream_head() + b"".join(chunk(frame) for frame in frames) + (LAST_CHUNK if whole else b"")


def hanging(*frames: bytes) -> Script:
    """These frames, then silence until the client disconnects."""

    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head() + b"".join(chunk(frame) for frame in frames))
        await writer.drain()
        await asyncio.Event().wait()

    return play


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()

"""A transport for MCP servers that are programs: one JSON message per line on standard input and output.

Unlike the SDK's own transport it is bounded: a longer line is dropped and answered with an error in the place of its
response, a flood is slowed down, invalid UTF-8 is replaced, lines that are no messages are counted. The end of standard
error is kept for the error that a person reads.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from threadline.core.sanitize import visible

MESSAGE_BYTES = 8_388_608
"""The longest message. Decoding it takes about 50 ms, in which the process does nothing else."""
NOISE_BYTES = 268_435_456
"""A server that sends so much without one message is ended."""
MESSAGES_PER_SECOND = 1_000
STOP_SECONDS = 1.0
"""How long a server may take to end after its input was closed, and again after SIGTERM."""
_CHUNK = 65_536
_ENDS = 512
"""How much of an overlong line is kept at either end, where its id is."""
_STDERR_BYTES = 4_096
_ID = re.compile(rb'"id"\s*:\s*(\d+|"[^"\\]{1,64}")')


class Line(NamedTuple):
    """A line, or both ends of one that is too long. `size` is that of the whole line."""

    data: bytes
    size: int


class LineReader:
    """Splits chunks of bytes into lines, and keeps at most `limit` bytes of one."""

    def __init__(self, limit: int = MESSAGE_BYTES) -> None:
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[Line]:
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._add(piece)
            yield self._end_line()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._chunks.append(piece)
            return
        if self._chunks:
            head = b"".join(self._chunks)
            self._chunks, self._tail = [], head[-_ENDS:]
            self._head = head[:_ENDS]
        self._tail = (self._tail + piece)[-_ENDS:]

    def _end_line(self) -> Line:
        if self._size <= self._limit:
            line = Line(b"".join(self._chunks), self._size)
        else:
            line = Line(self._head + b"\n" + self._tail, self._size)
        self._chunks, self._size, self._tail = [], 0, b""
        return line

    _head = b""


class Program:
    """A running server. `ended` is set when it closed its output; `describe_end` says how it ended."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ended = asyncio.Event()
        self._noise = 0
        self._flooded = False
        self._stderr = b""

    async def has_ended(self) -> bool:
        """Whether it has, within STOP_SECONDS: its end may be seen a moment after a write to it has failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.ended.wait()
        return self.ended.is_set()

    async def describe_end(self) -> str:
        """Why it ended. Its exit code is known a moment after the end of its output."""
        await self._wait_for_exit()
        if self._flooded:
            return f"it sent {NOISE_BYTES:,} bytes without a message"
        code = self._process.returncode
        how = "it closed its output" if code is None else f"it ended with {_describe_code(code)}"
        words = visible(self._stderr.decode(errors="replace")).strip()
        return f"{how}: {words.splitlines()[-1][:300]}" if words else how

    async def read_messages(self, out: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        assert self._process.stdout is not None
        lines, loop = LineReader(), asyncio.get_running_loop()
        count, second = 0, loop.time()
        try:
            async with out:
                while not self._flooded and (chunk := await self._process.stdout.read(_CHUNK)):
                    self._noise += len(chunk)
                    self._flooded = self._noise > NOISE_BYTES
                    for line in lines.feed(chunk):
                        if (message := _parse(line)) is not None:
                            count, self._noise = count + 1, 0
                            await out.send(message)
                    if count > MESSAGES_PER_SECOND:
                        # Backpressure: the pipe fills and the server waits, instead of this process being busy.
                        await asyncio.sleep(max(second + 1.0 - loop.time(), 0.0))
                        count, second = 0, loop.time()
                    elif loop.time() - second > 1.0:
                        count, second = 0, loop.time()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the session has ended
        finally:
            self.ended.set()

    async def write_messages(self, given: MemoryObjectReceiveStream[SessionMessage]) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError, anyio.ClosedResourceError):
            async with given:
                async for each in given:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._process.stdin.write(text.encode(errors="replace") + b"\n")
                    await self._process.stdin.drain()

    async def read_stderr(self) -> None:
        """Drained always: a server that writes to a full pipe would wait for ever."""
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self._stderr = (self._stderr + chunk)[-_STDERR_BYTES:]

    async def _wait_for_exit(self) -> None:
        """At most STOP_SECONDS. Not `wait`: it also waits for the pipes, which a child of the server may hold open."""
        ends = asyncio.get_running_loop().time() + STOP_SECONDS
        while self._process.returncode is None and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Closes its input, then signals its process group. Bounded by twice STOP_SECONDS."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            await self._wait_for_exit()
            # Always: the program may have ended and left children, such as those of npx.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        # The pipes stay open while a child of the server holds them; the transport has no public access.
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()


@asynccontextmanager
async def start_program(
    command: Sequence[str], env: Mapping[str, str]
) -> AsyncIterator[
    tuple[Program, MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Starts a server, with a few harmless variables of this process and `env`. OSError if it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**get_default_environment(), **env},
        # A group of its own: Ctrl-C in a terminal must not end it, and `stop` must reach its children.
        start_new_session=True,
    )
    program = Program(process)
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(program.read_messages(incoming), name="mcp stdout"),
        asyncio.create_task(program.write_messages(outgoing), name="mcp stdin"),
        asyncio.create_task(program.read_stderr(), name="mcp stderr"),
    ]
    try:
        yield program, read_stream, write_stream
    finally:
        await asyncio.shield(_end(program, tasks))
        for stream in (incoming, read_stream, write_stream, outgoing):
            stream.close()


async def _end(program: Program, tasks: list[asyncio.Task[None]]) -> None:
    await program.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _parse(line: Line) -> SessionMessage | None:
    if line.size > MESSAGE_BYTES:
        return _reject(line)
    text = line.data.decode(errors="replace").strip()
    if not text.startswith("{"):
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        return None


def _reject(line: Line) -> SessionMessage | None:
    """An error in the place of a response that is too long, if its id is found: else its call takes its time limit."""
    found = _ID.findall(line.data)
    if not found:
        return None
    # Servers write the id before or after the result; either way it is the outermost one.
    raw = found[0] if line.data.find(b'"result"') > line.data.find(found[0]) else found[-1]
    text = f"the server's answer has {line.size:,} bytes, more than {MESSAGE_BYTES:,}, and was dropped: ask for less"
    call_id = raw.strip(b'"').decode() if raw.startswith(b'"') else int(raw)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=call_id, error=ErrorData(code=INTERNAL_ERROR, message=text)))


def _describe_code(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

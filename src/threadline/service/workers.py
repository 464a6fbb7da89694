"""Several processes that serve one socket: started, started again when one dies, and told to end together.

The parent listens and opens no database; a worker inherits the socket and does all the work. The first one starts
alone, so that a wrong setting is said once and ends the whole. A worker knows that its parent lives by its standard
input, which closes with it: so nobody serves on behind the back of whoever started the service.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress

log = logging.getLogger("threadline.service")

READY = "ready"
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_SETTLED_SECONDS = 60.0
_PATIENCE_SECONDS = 10.0
"""How much longer than its turns' grace a worker may take to end, and how long after a second signal."""


class Workers:
    """`command` starts one, given the number of the socket and its own; it prints READY when it takes requests."""

    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        count: int,
        listening: socket.socket,
        *,
        grace_seconds: float,
        announce: Callable[[], None],
    ) -> None:
        self._command = command
        self._count = count
        self._listening = listening
        self._grace = grace_seconds
        self._announce = announce
        self._processes: set[Process] = set()
        self._ending = asyncio.Event()
        self._first_is_ready = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Until told to end, or until the first worker could not begin: then its exit code."""
        loop = asyncio.get_running_loop()
        for wish in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(wish, self._end)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_running(0))
                await self._first_or_end()
                if not self._ending.is_set():
                    self._announce()
                    for number in range(1, self._count):
                        group.create_task(self._keep_running(number))
        finally:
            for wish in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(wish)
        return self._code

    async def _first_or_end(self) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._first_is_ready, self._ending)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()

    async def _keep_running(self, number: int) -> None:
        failures = 0
        while not self._ending.is_set():
            lived = await self._run_one(number)
            if self._ending.is_set():
                return
            failures = 1 if lived >= _SETTLED_SECONDS else failures + 1
            pause = min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2 ** (failures - 1))
            log.warning("worker died, starting it again", extra={"worker": number, "pause": pause})
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()

    async def _run_one(self, number: int) -> float:
        """From its start to its end; how long it served."""
        inherited = self._listening.fileno()
        # In a session of its own: what a terminal sends to all its processes is for the parent to pass on.
        process = await asyncio.create_subprocess_exec(
            *self._command(inherited, number), stdin=PIPE, stdout=PIPE, pass_fds=(inherited,), start_new_session=True
        )
        self._processes.add(process)
        try:
            if self._ending.is_set():
                process.terminate()
            assert process.stdout is not None
            is_ready = await process.stdout.readline() == f"{READY}\n".encode()
            began = asyncio.get_running_loop().time()
            if is_ready:
                log.info("worker serves", extra={"worker": number, "pid": process.pid})
                self._first_is_ready.set()
            code = await process.wait()
        finally:
            self._processes.discard(process)
        if not self._first_is_ready.is_set():
            self._code = code
            self._ending.set()
        return asyncio.get_running_loop().time() - began if is_ready else 0.0

    def _end(self) -> None:
        """Once: everyone lets their turns end. Twice: they do not."""
        patience = _PATIENCE_SECONDS if self._ending.is_set() else self._grace + _PATIENCE_SECONDS
        self._ending.set()
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.terminate()
        asyncio.get_running_loop().call_later(patience, self._kill)

    def _kill(self) -> None:
        for process in self._processes:
            log.warning("worker does not end, killing it", extra={"pid": process.pid})
            with suppress(ProcessLookupError):
                process.kill()

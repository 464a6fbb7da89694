"""Worker processes that share one listening socket: started, restarted after a crash, stopped together.

The parent listens and opens no database; workers inherit the socket and do all the work. The first worker starts alone,
so that a wrong setting is reported once and ends the service. Each worker's standard input is a pipe from the parent:
when it closes, the parent is gone and the worker stops.
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
# Backoff between restarts, doubled with each crash until a worker has run for a minute.
_MIN_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 30.0
_STABLE_SECONDS = 60.0
# Added to the grace period of turns before a worker is killed; also the time after a second signal.
_KILL_SECONDS = 10.0


class Workers:
    """`command` returns the command line of a worker for a socket and a worker number. A worker prints READY when it
    accepts requests."""

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
        self._grace_seconds = grace_seconds
        self._announce = announce
        self._processes: set[Process] = set()
        self._stopping = asyncio.Event()
        self._first_is_ready = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Runs until a signal stops it, or until the first worker fails to start: then returns its exit code."""
        loop = asyncio.get_running_loop()
        for stop_signal in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(stop_signal, self._stop)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_running(0))
                await self._wait_for_first()
                if not self._stopping.is_set():
                    self._announce()
                    for number in range(1, self._count):
                        group.create_task(self._keep_running(number))
        finally:
            for stop_signal in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(stop_signal)
        return self._exit_code

    async def _wait_for_first(self) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._first_is_ready, self._stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()

    async def _keep_running(self, number: int) -> None:
        failures = 0
        while not self._stopping.is_set():
            seconds = await self._run_one(number)
            if self._stopping.is_set():
                return
            failures = 1 if seconds >= _STABLE_SECONDS else failures + 1
            backoff = min(_MAX_BACKOFF_SECONDS, _MIN_BACKOFF_SECONDS * 2 ** (failures - 1))
            log.warning("worker exited, restarting", extra={"worker": number, "backoff": backoff})
            # Waits for the backoff, or for a signal.
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff):
                    await self._stopping.wait()

    async def _run_one(self, number: int) -> float:
        """Starts a worker and waits until it ends. Returns for how many seconds it served."""
        inherited = self._listening.fileno()
        # In its own session: the terminal's Ctrl-C must reach only the parent, which stops the workers in order.
        process = await asyncio.create_subprocess_exec(
            *self._command(inherited, number), stdin=PIPE, stdout=PIPE, pass_fds=(inherited,), start_new_session=True
        )
        self._processes.add(process)
        try:
            if self._stopping.is_set():
                # The signal came while the process was starting, so `_stop` did not see it.
                process.terminate()
            assert process.stdout is not None
            is_ready = await process.stdout.readline() == f"{READY}\n".encode()
            started_at = asyncio.get_running_loop().time()
            if is_ready:
                log.info("worker ready", extra={"worker": number, "pid": process.pid})
                self._first_is_ready.set()
            code = await process.wait()
        finally:
            self._processes.discard(process)
        if not self._first_is_ready.is_set():
            self._exit_code = code
            self._stopping.set()
        return asyncio.get_running_loop().time() - started_at if is_ready else 0.0

    def _stop(self) -> None:
        """On the first signal workers let their turns end, on the second they do not."""
        timeout = _KILL_SECONDS if self._stopping.is_set() else self._grace_seconds + _KILL_SECONDS
        self._stopping.set()
        for process in self._processes:
            # It may have ended already.
            with suppress(ProcessLookupError):
                process.terminate()
        # A worker that hangs must not keep the service from stopping.
        asyncio.get_running_loop().call_later(timeout, self._kill)

    def _kill(self) -> None:
        for process in self._processes:
            log.warning("worker did not stop in time, killing it", extra={"pid": process.pid})
            with suppress(ProcessLookupError):
                process.kill()

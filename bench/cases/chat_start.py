"""The terminal: how soon `threadline chat` can be typed into, and what it takes of the machine.

It is driven through a pseudo-terminal, because without one the program does not start its line editor at all.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from bench.arena import Arena
from bench.budgets import CHAT, CHAT_MEMORY, OURS
from bench.measure import Samples
from bench.results import Row, timing

# The line editor colours its prompt and moves the cursor over the blank after it.
PROMPT = b"\x1b[0m>"
_PATIENCE = 20.0
_END_OF_INPUT = b"\x04"


async def chat(arena: Arena) -> list[Row]:
    """`threadline chat` started in a pseudo-terminal on a new database, until the prompt is on the screen.
    People open it for one question; the mere imports of other agents' toolkits take longer than they will wait."""
    seconds: list[list[float]] = []
    megabytes: list[float] = []
    for _ in range(1 + arena.sized(10, 3)):
        started = Terminal(arena.file("chat"))
        seconds.append([started.seconds_to_prompt()])
        megabytes.append(started.peak_megabytes())
        started.leave()
    return [
        timing(CHAT, OURS, Samples(seconds[1:])),
        Row(CHAT_MEMORY.name, OURS, "MB", max(megabytes), samples=len(megabytes)),
    ]


class Terminal:
    """A chat in a pseudo-terminal, as a person would have it."""

    def __init__(self, database: Path) -> None:
        self._screen, shown = pty.openpty()
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            [str(Path(sys.executable).with_name("threadline")), "chat"],
            stdin=shown,
            stdout=shown,
            stderr=shown,
            env={**os.environ, "THREADLINE_DATABASE": str(database), "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(shown)

    def seconds_to_prompt(self) -> float:
        seen = b""
        while PROMPT not in seen:
            if not select.select([self._screen], [], [], _PATIENCE)[0]:
                raise RuntimeError(f"no prompt after {_PATIENCE} s, only {seen!r}")
            seen += os.read(self._screen, 65536)
        return time.perf_counter() - self._started

    def peak_megabytes(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (peak,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024 / 1e6

    def leave(self) -> None:
        os.write(self._screen, _END_OF_INPUT)
        self._process.wait(timeout=_PATIENCE)
        os.close(self._screen)

"""The bare driver under a crowd: a connection and a thread for each task, as its documentation advises.

Connections wait for each other in SQLite's own busy handler; nothing here retries or orders anything.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.contenders.bare_sqlite import append, connect
from bench.workload import Turn


class BareSqliteCrowd:
    def __init__(self, path: Path, tasks: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=tasks)
        self._idle: list[sqlite3.Connection] = [connect(path) for _ in range(tasks)]
        self._connections = list(self._idle)

    async def append(self, thread_id: str, turn: Turn) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._append, thread_id, turn)

    def _append(self, thread_id: str, turn: Turn) -> None:
        connection = self._idle.pop()
        try:
            append(connection, thread_id, turn)
        finally:
            self._idle.append(connection)

    def close(self) -> None:
        self._threads.shutdown()
        for connection in self._connections:
            connection.close()

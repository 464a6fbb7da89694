"""Turns of one thread that wait in one process: each for the one before it, and none of them for the database.

Who runs when is for leases to say. But of a hundred requests to one thread all but the first would ask for theirs in
vain, and again each second; here they know whom they wait for. An order that is not certain is left to the leases.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from threadline.core.turns import Turn


class _Last(NamedTuple):
    request_seq: int
    task: asyncio.Task[Turn | None]


class Queues:
    def __init__(self) -> None:
        self._last: dict[tuple[str, str], _Last] = {}

    def before(self, tenant_id: str, turn: Turn) -> asyncio.Task[Turn | None] | None:
        """The task of the turn that this one follows on its thread, if it is here."""
        last = self._last.get((tenant_id, turn.thread_id))
        if last is None or turn.request_seq is None or last.request_seq >= turn.request_seq:
            return None
        return last.task

    def join(self, tenant_id: str, turn: Turn, task: asyncio.Task[Turn | None]) -> None:
        """The next one that comes follows this one, until its task is done."""
        thread = (tenant_id, turn.thread_id)
        last = self._last.get(thread)
        if turn.request_seq is None or (last is not None and last.request_seq > turn.request_seq):
            return
        joined = self._last[thread] = _Last(turn.request_seq, task)
        task.add_done_callback(lambda _: self._leave(thread, joined))

    def _leave(self, thread: tuple[str, str], joined: _Last) -> None:
        if self._last.get(thread) is joined:
            del self._last[thread]

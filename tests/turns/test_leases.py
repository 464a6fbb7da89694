"""Renewals of a lease: never later than a third of it, whatever else wakes the process or fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from threadline.bootstrap import Threadline
from threadline.core.errors import StoreUnavailable
from threadline.core.threads import Scope
from threadline.core.turns import Turn
from threadline.library import UserView
from threadline.processes import LocalProcesses
from threadline.turns.leases import Leases, Timing

_LEASE_SECONDS = 3.0


class Scripted:
    """A store whose notifications wake at given times, and that records renewals. Waiting moves the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wakes: list[float], failures: int, until: float) -> None:
        self.now = 0.0
        self.renewals: list[float] = []
        self._wakes = wakes
        self._failures = failures
        self._until = until
        # The instance's own attribute: only this test reads the loop's time.
        loop.time = lambda: self.now  # type: ignore[method-assign]

    def scoped(self, scope: Scope) -> Scripted:
        return self

    @asynccontextmanager
    async def watch(self, scope: Scope, subject: str) -> AsyncIterator[Scripted]:
        yield self

    async def wait(self, seconds: float) -> None:
        self.now = min([wake for wake in self._wakes if self.now < wake <= self.now + seconds] + [self.now + seconds])

    async def is_stop_requested(self, turn_id: str) -> bool:
        return False

    async def renew_lease(self, turn_id: str, fence: int, worker: str, *, seconds: float) -> bool:
        if self._failures:
            self._failures -= 1
            raise StoreUnavailable("no connection was free")
        self.renewals.append(self.now)
        return self.now < self._until


@pytest.mark.req("R-02")
@pytest.mark.parametrize("failures", [0, 2])
@pytest.mark.parametrize("wakes", [[], [0.95, 1.9, 2.85], [n / 10 + 0.05 for n in range(100)]])
async def test_a_lease_is_renewed_in_time_whatever_wakes_its_process(
    threadline: Threadline, me: UserView, wakes: list[float], failures: int
) -> None:
    thread = await me.create_thread()
    turn = await thread.ask("Hi").ended()
    stored = await threadline.turns.find(me.scope, turn.id)
    loop = asyncio.get_running_loop()
    store: Any = Scripted(loop, wakes, failures, until=9.0)
    leases = Leases(store, LocalProcesses(None), Timing(lease_seconds=_LEASE_SECONDS))
    lost: list[bool] = []
    try:
        await leases.keep(me.scope, stored, stop=lambda: None, lose=lambda: lost.append(True))
    finally:
        del loop.time
    assert lost == [True]
    times = [0.0, *store.renewals]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    allowed = _LEASE_SECONDS / 3 + failures * _LEASE_SECONDS / 15
    assert max(gaps) <= allowed + 1e-6


async def test_a_lease_is_kept_until_the_end_is_stored(
    threadline: Threadline, me: UserView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that cannot be stored is tried again, perhaps for longer than a lease."""
    finish, keep = threadline.turns.finish, Leases.keep
    is_finishing, may_finish, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def finish_later(*given: Any) -> Turn | None:
        is_finishing.set()
        await may_finish.wait()
        return await finish(*given)

    async def keep_and_tell(self: Leases, *given: Any, **named: Any) -> None:
        try:
            await keep(self, *given, **named)
        finally:
            has_ended.set()

    monkeypatch.setattr(threadline.turns, "finish", finish_later)
    monkeypatch.setattr(Leases, "keep", keep_and_tell)
    reply = (await me.create_thread()).ask("Hi")
    await reply.accept()
    await is_finishing.wait()
    assert not has_ended.is_set()
    may_finish.set()
    assert (await reply.ended()).status == "executed"
    assert has_ended.is_set()

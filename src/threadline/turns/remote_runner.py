"""RemoteRunner: the runner of a process that accepts turns and runs none.

Each turn that it accepts is handed over and announced, so that a worker takes it at once. An abandoned turn that it
finds, because a reader waits for it, is handed over in the same way. What needs no agent is done here: a stop, and the
end of a turn that nothing can continue.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property

from threadline.core.errors import NoWorker, StoreFailed
from threadline.core.threads import Scope, Thread
from threadline.core.turn_commits import Accepted
from threadline.core.turns import Lease, Turn
from threadline.ports import Approver, Store
from threadline.turns.leases import Holder, TurnTask
from threadline.turns.runner import Runner

log = logging.getLogger("threadline.turns")

# Workers are restarted within this time. After it, further requests are refused instead of left waiting.
_REFUSE_SECONDS = 10.0
_LOOK_SECONDS = 0.25


class RemoteRunner(Runner):
    def new_lease(self) -> Lease:
        return Lease(None, 0.0)

    def holder(self) -> Holder:
        """NoWorker while no worker takes what was handed over before."""
        if (waited := self.channel_wait_seconds) > _REFUSE_SECONDS:
            raise NoWorker(waited)
        return super().holder()

    @property
    def channel_wait_seconds(self) -> float:
        return self._handovers.wait_seconds

    async def begin(self, scope: Scope, accepted: Accepted, approver: Approver) -> None:
        if accepted.turn.is_handed_over:
            self._handovers.announce(scope, accepted.turn)
        else:
            await self.continue_turn(scope, accepted.turn, approver)

    def start(
        self, scope: Scope, turn: Turn, approver: Approver, thread: Thread | None = None, *, is_leased: bool = False
    ) -> TurnTask:
        """The task's result is None: another process ends the turn."""
        return self._handovers.start(scope, turn)

    @cached_property
    def _handovers(self) -> _Handovers:
        return _Handovers(self._store)


class _Handovers:
    """Hands turns over, and measures how long they wait for a worker. It follows one at a time: workers claim in order
    of acceptance, so the others wait no longer than the oldest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks: set[TurnTask] = set()
        self._following: asyncio.Task[None] | None = None
        self._since = 0.0

    @property
    def wait_seconds(self) -> float:
        return 0.0 if self._following is None else asyncio.get_running_loop().time() - self._since

    def announce(self, scope: Scope, turn: Turn) -> None:
        self._store.announce_work(scope.tenant_id)
        if self._following is None:
            self._since = asyncio.get_running_loop().time()
            self._following = asyncio.create_task(self._follow(scope, turn), name=f"wait for a worker of {turn.id}")

    def start(self, scope: Scope, turn: Turn) -> TurnTask:
        task = asyncio.create_task(self._hand_over(scope, turn), name=f"hand over {turn.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _hand_over(self, scope: Scope, turn: Turn) -> None:
        try:
            if not turn.is_handed_over:
                await self._store.scoped(scope).release_lease(turn.id, turn.fence)
        except StoreFailed:
            # Its lease has expired, so a worker's sweep finds it.
            log.warning("turn not handed over", extra={"turn_id": turn.id})
        self.announce(scope, turn)

    async def _follow(self, scope: Scope, turn: Turn) -> None:
        session, must_wait = self._store.scoped(scope), True
        try:
            while must_wait:
                # Polls: one small read at a time costs less than a notice of every turn that a worker takes.
                await asyncio.sleep(_LOOK_SECONDS)
                try:
                    stored = await session.turn(turn.id)
                except StoreFailed:
                    continue
                must_wait = stored is not None and stored.is_handed_over
        finally:
            self._following = None

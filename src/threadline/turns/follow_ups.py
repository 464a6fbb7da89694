"""Work that follows from turns, beside them: summaries when a prompt is nearly too long, and titles after the first
reply. No caller waits for it, and a failure is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from threadline.core.context import Overflow
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope
from threadline.core.turns import Turn
from threadline.ports import Store, Summariser
from threadline.settings import Settings
from threadline.threads.compaction import Caller, Compaction
from threadline.turns.meters import Meters
from threadline.turns.model_texts import AgentFinder, ModelSummariser, ModelWriter, TitleWriter, is_first_turn

log = logging.getLogger("threadline.turns")

# At a time, in one process: turns have the models to themselves most of the time.
_PARALLEL = 4
# Work that waits for its turn; more is left out, and the next turn of its thread asks for it again.
_MAX_WAITING = 1_000


class FollowUps:
    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        agents: AgentFinder,
        meters: Meters,
        settings: Settings,
        summariser: Summariser | None = None,
    ) -> None:
        writer = ModelWriter(store, agents, meters, settings.agent)
        chosen = summariser or ModelSummariser(writer, settings.compaction.seconds)
        self._models = writer if summariser is None else None
        self.compaction = Compaction(store, sealer, settings.windows.reading.tokens, chosen)
        self._titles = TitleWriter(store, sealer, writer, settings.titles.seconds)
        self._settings = settings
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._is_closing = False

    def make_room(self, scope: Scope, turn: Turn, overflow: Overflow) -> None:
        """Summarises older messages of the turn's thread."""
        if self._settings.compaction.automatic:
            caller = Caller(scope, turn.agent_id, turn.surface)
            work = partial(self._make_room, caller, turn.thread_id, overflow)
            self._start(f"compaction {scope.tenant_id} {turn.thread_id}", work)

    async def _make_room(self, caller: Caller, thread_id: str, overflow: Overflow) -> None:
        # Without a model, messages that still fit stay as they are: planning would read the whole window in vain.
        still_fits = overflow.left_out < 0
        if still_fits and self._models is not None and not await self._models.has_model(caller.scope, caller.agent_id):
            return
        await self.compaction.make_room(caller, thread_id, overflow)

    def follow_turn(self, scope: Scope, turn: Turn) -> None:
        """Call it when a turn has ended."""
        if self._settings.titles.by_model and is_first_turn(turn):
            work = partial(self._titles.write_title, scope, turn)
            self._start(f"title {scope.tenant_id} {turn.thread_id}", work)

    async def idle(self) -> None:
        """Returns when nothing runs."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _start(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        """Does nothing while work under the same key runs or waits."""
        if self._is_closing or key in self._tasks or len(self._tasks) >= _MAX_WAITING:
            return
        task = asyncio.create_task(self._run(key, work), name=key)
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _run(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            async with self._slots:
                await work()
        except Exception:
            # No caller waits for it that could handle the error.
            log.exception("background work failed", extra={"work": key.partition(" ")[0]})

    async def close(self, grace_seconds: float) -> None:
        """Waits so long for what runs, then cancels it."""
        self._is_closing = True
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=grace_seconds)
        left = list(self._tasks.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

"""The search index follows the log: a task takes in what was appended once a store has been quiet for a moment.

Words cost more to take than messages cost to write, so they wait while a store is busy, but not for ever. Nothing
relies on it: a search takes in what its owner still lacks, and `index_pending` does so for everyone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from threadline.core.errors import StoreFailed
from threadline.core.threads import Scope

QUIET_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
_log = logging.getLogger(__name__)


class SearchIndexer:
    """`take` takes in some messages of a scope and says how many."""

    def __init__(self, take: Callable[[Scope], Awaitable[int]]) -> None:
        self._take = take
        self._behind: dict[Scope, None] = {}
        self._appended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, scope: Scope) -> None:
        self._behind[scope] = None
        self._appended.set()
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="threadline search index")

    async def _follow(self) -> None:
        while True:
            await self._appended.wait()
            await self._wait_for_quiet()
            behind, self._behind = self._behind, {}
            for scope in behind:
                await self._catch_up(scope)

    async def _wait_for_quiet(self) -> None:
        give_up = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while self._appended.is_set() and asyncio.get_running_loop().time() < give_up:
            self._appended.clear()
            await asyncio.sleep(QUIET_SECONDS)
        self._appended.clear()

    async def _catch_up(self, scope: Scope) -> None:
        try:
            while await self._take(scope):
                pass
        except StoreFailed as error:
            _log.warning("the search index waits: %s", error)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

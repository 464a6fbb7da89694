"""Updates the search index in the background, when a store has been idle for a moment.

Indexing a message costs more than writing it, so it waits while the store is busy, for `MAX_DELAY_SECONDS` at most.
Nothing relies on this task: a search indexes the messages of its owner that are missing, and `index_pending` those of
everyone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from threadline.core.errors import StoreFailed
from threadline.core.threads import Scope

IDLE_SECONDS = 1.0
MAX_DELAY_SECONDS = 30.0
_log = logging.getLogger(__name__)


class SearchIndexer:
    def __init__(self, index_some: Callable[[Scope], Awaitable[int]]) -> None:
        """`index_some` indexes some messages of a scope and returns how many."""
        self._index_some = index_some
        self._pending: dict[Scope, None] = {}
        """A set that keeps the order of arrival."""
        self._appended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, scope: Scope) -> None:
        self._pending[scope] = None
        self._appended.set()
        if self._task is None:
            self._task = asyncio.create_task(self._loop(), name="threadline search indexer")

    async def _loop(self) -> None:
        while True:
            await self._appended.wait()
            await self._wait_until_idle()
            pending, self._pending = self._pending, {}
            for scope in pending:
                await self._index(scope)

    async def _wait_until_idle(self) -> None:
        # Bounded: a store that is never idle would otherwise leave its whole index to the next search.
        deadline = asyncio.get_running_loop().time() + MAX_DELAY_SECONDS
        while self._appended.is_set() and asyncio.get_running_loop().time() < deadline:
            self._appended.clear()
            await asyncio.sleep(IDLE_SECONDS)
        self._appended.clear()

    async def _index(self, scope: Scope) -> None:
        try:
            while await self._index_some(scope):
                pass
        except StoreFailed as error:
            # The next append or search of this scope tries again.
            _log.warning("search index not updated: %s", error)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

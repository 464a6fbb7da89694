"""Reads that wait for a connection are shared: who asks the same meanwhile gets the same answer.

A read sees what was committed when it began, and one that waits has not begun; so nobody is told less than if they had
asked alone. While there are idle connections nothing is shared. Where there are none, a hundred webhooks that come at
once look up the credentials of their platform a few times instead of a hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg

from threadline.stores.postgres.pool import Pool

Question: TypeAlias = tuple[str, tuple[Any, ...]]
"""A function of the schema and its values, which name the scope."""
Fetch: TypeAlias = Callable[[asyncpg.Connection, str, tuple[Any, ...]], Awaitable[list[asyncpg.Record]]]
"""Asks on a connection, and gives that back."""


class ReadCoalescer:
    def __init__(self, pool: Pool, fetch: Fetch) -> None:
        self._pool = pool
        self._fetch = fetch
        self._waiting: dict[Question, asyncio.Task[list[asyncpg.Record]]] = {}
        self._tasks: set[asyncio.Task[list[asyncpg.Record]]] = set()

    async def ask(self, function: str, values: tuple[Any, ...]) -> list[asyncpg.Record]:
        question = (function, values)
        answer = self._waiting.get(question)
        if answer is None:
            # A task of its own, so that none of those who wait for it can take it from the others.
            answer = self._waiting[question] = asyncio.create_task(self._answer(question), name="threadline read")
            self._tasks.add(answer)
            answer.add_done_callback(self._tasks.discard)
        return await asyncio.shield(answer)

    async def _answer(self, question: Question) -> list[asyncpg.Record]:
        try:
            connection = await self._pool.take()
        finally:
            del self._waiting[question]
        return await self._fetch(connection, *question)

"""Turns: accepted in order, leased by one worker at a time behind a fence, ended once.

A call with an old fence changes nothing. A turn gets its place in the thread's order while the thread's row is locked,
so that the order of places is the order in which turns became visible.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from threadline.core.errors import DuplicateId, KeyReused, NotFound
from threadline.core.ids import check_id
from threadline.core.turns import ACTIVE, NewTurn, Surface, Turn
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/turns.sql")


class TurnOperations(Operations):
    @in_transaction
    async def create_turn(self, new: NewTurn) -> Turn:
        check_id("turn", new.id)
        thread = await self.session.row(_SQL["lock_thread"], new.thread_id)
        if thread is None:
            raise NotFound("thread", new.thread_id)
        owner, key, now = thread["owner_id"], new.idempotency_key, self.session.now()
        row = await self.session.row(
            _SQL["add_turn"],
            new.id,
            owner,
            new.thread_id,
            new.surface,
            new.agent_id,
            new.status,
            key,
            new.request_hash,
            new.request_seq,
            now,
            None if new.status in ACTIVE else now,
        )
        if row is not None:
            self.session.notify(new.thread_id)
            return rows.turn(row)
        known = None if key is None else await self.session.row(_SQL["find_turn_by_key"], owner, key)
        if key is not None and known is not None and known["id"] != new.id:
            raise KeyReused(key)
        raise DuplicateId("turn", new.id)

    async def turn(self, turn_id: str) -> Turn | None:
        found = await self.session.call(_SQL["find_turn"], turn_id, reads=True)
        return rows.turn(found[0]) if found else None

    @in_transaction
    async def turn_by_key(self, key: str) -> Turn | None:
        row = await self.session.row(_SQL["find_turn_by_key"], self.session.owner_id, key)
        return None if row is None else rows.turn(row)

    async def active_turns(self, thread_id: str) -> list[Turn]:
        return [rows.turn(row) for row in await self.session.call(_SQL["list_active_turns"], thread_id, reads=True)]

    @in_transaction
    async def turns(self, thread_id: str, *, limit: int = 50) -> list[Turn]:
        return [rows.turn(row) for row in await self.session.rows(_SQL["list_turns"], thread_id, limit)]

    @in_transaction
    async def surfaces(self, thread_ids: Sequence[str]) -> dict[str, tuple[Surface, ...]]:
        found = await self.session.rows(_SQL["list_surfaces"], list(thread_ids))
        return {row["id"]: tuple(row["surfaces"]) for row in found}

    async def lease_turn(self, turn_id: str, worker: str, *, until: dt.datetime) -> Turn | None:
        found = await self.session.call(_SQL["lease_turn"], turn_id, worker, until, self.session.now())
        return rows.turn(found[0]) if found else None

    async def renew_lease(self, turn_id: str, fence: int, *, until: dt.datetime) -> bool:
        ((renewed,),) = await self.session.call(_SQL["renew_lease"], turn_id, fence, until)
        return bool(renewed)

    @in_transaction
    async def release_lease(self, turn_id: str, fence: int) -> bool:
        return await self.session.row(_SQL["release_lease"], turn_id, fence, self.session.now()) is not None

    @in_transaction
    async def request_stop(self, turn_id: str) -> bool:
        asked = await self.session.row(_SQL["request_stop"], turn_id, self.session.now())
        if asked is None:
            return False
        self.session.notify(asked["thread_id"])
        return True

    async def is_stop_requested(self, turn_id: str) -> bool:
        ((asked,),) = await self.session.call(_SQL["is_stop_requested"], turn_id, reads=True)
        return bool(asked)

    @in_transaction
    async def due_turns(self, *, limit: int = 100) -> list[Turn]:
        return [rows.turn(row) for row in await self.session.rows(_SQL["list_due_turns"], self.session.now(), limit)]

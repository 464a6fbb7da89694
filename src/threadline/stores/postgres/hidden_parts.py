"""Hidden messages and parts. The functions that read messages return the marks with them."""

from __future__ import annotations

from collections.abc import Sequence

from threadline.core.errors import NotFound
from threadline.core.hidden_parts import HiddenPart
from threadline.stores.postgres.session import Operations
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/hidden_parts.sql")


class HiddenPartOperations(Operations):
    async def hide_parts(self, thread_id: str, parts: Sequence[HiddenPart], *, turn_id: str | None = None) -> int:
        timelines, seqs, numbers = ([part[field] for part in parts] for field in range(3))
        (row,) = await self.session.call(
            _SQL["hide_parts"], self.session.now_us(), thread_id, timelines, seqs, numbers, turn_id
        )
        added: int | None = row["added"]
        if added is None:
            raise NotFound("thread", thread_id)
        if added < 0:
            missing = parts[-added - 1]
            raise NotFound("message", f"{missing.timeline_id} {missing.seq}")
        self.session.notify(thread_id)
        return added

    async def is_turn_hidden(self, turn_id: str) -> bool:
        (row,) = await self.session.call(_SQL["is_turn_hidden"], turn_id, reads=True)
        return bool(row["is_hidden"])

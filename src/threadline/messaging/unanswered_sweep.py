"""Catching up: messages whose turn has ended and whose sender was told nothing.

A reply is enqueued in the transaction that ends its turn, so this is rare: the turn was stopped before it ran, or its
platform was switched off when it ended. Safe with any number of workers, because a reply's rows have ids of their own.
"""

from __future__ import annotations

from threadline.core.channels import InboxRow
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Turn, reply_id
from threadline.messaging.outbox import Outbox
from threadline.ports import Store, Transaction


class UnansweredSweep:
    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._store = store
        self._outbox = outbox

    async def sweep(self) -> int:
        """Looks after every tenant. How many messages were looked at."""
        return sum([await self.catch_up(tenant_id) for tenant_id in await self._store.tenants()])

    async def catch_up(self, tenant_id: str) -> int:
        rows = await self._store.scoped(system_scope(tenant_id)).unanswered()
        for row in rows:
            if row.owner_id is not None:
                await self._answer(Scope(tenant_id, row.owner_id), row)
        return len(rows)

    async def _answer(self, scope: Scope, row: InboxRow) -> None:
        async def work(tx: Transaction) -> None:
            standing = await tx.inbox_row(row.platform, row.key)
            if standing is None or standing.status != "accepted":
                return
            turn = None if row.turn_id is None else await tx.turn(row.turn_id)
            if turn is None:
                # Its thread was purged: there is nothing left to answer.
                await tx.settle_inbox(row.platform, row.key, status="done", decision="gone", turn_id=row.turn_id)
            elif not turn.is_active:
                await self._outbox.enqueue_reply(tx, turn, await _said(tx, turn))

        await self._store.transact(scope, work)


async def _said(tx: Transaction, turn: Turn) -> str:
    thread = await tx.thread(turn.thread_id)
    reply = None if thread is None else await tx.message(thread.id, reply_id(turn.id))
    return reply.text if reply is not None else turn.error or ""

"""Sweep of unanswered messages: their turn has ended, and no reply was enqueued.

A reply is enqueued in the transaction that ends its turn, so this is rare: the turn was stopped before it ran, or its
platform was disabled when it ended. Safe with any number of workers, because the ids of a reply's rows are fixed.
"""

from __future__ import annotations

from threadline.core.channels import InboxRow
from threadline.core.messages import Message
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Turn, reply_id
from threadline.messaging.outbox import Outbox
from threadline.ports import Store, Transaction


class UnansweredSweep:
    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._store = store
        self._outbox = outbox

    async def sweep(self) -> int:
        """Sweeps every tenant. How many messages were found."""
        return sum([await self.catch_up(tenant_id) for tenant_id in await self._store.tenants()])

    async def catch_up(self, tenant_id: str) -> int:
        rows = await self._store.scoped(system_scope(tenant_id)).unanswered()
        for row in rows:
            if row.owner_id is not None:
                await self._answer(Scope(tenant_id, row.owner_id), row)
        return len(rows)

    async def _answer(self, scope: Scope, row: InboxRow) -> None:
        async def work(tx: Transaction) -> None:
            current = await tx.inbox_row(row.platform, row.key)
            if current is None or current.status != "accepted":
                return
            turn = None if row.turn_id is None else await tx.turn(row.turn_id)
            if turn is None:
                # The thread was purged: there is nothing to answer.
                await tx.settle_inbox(row.platform, row.key, status="done", decision="gone", turn_id=row.turn_id)
            elif not turn.is_active:
                reply = await _reply(tx, turn)
                if reply is None:
                    await self._outbox.enqueue_reply(tx, turn, turn.error or "", None)
                else:
                    await self._outbox.enqueue_reply(tx, turn, reply.text, reply.parts_json)

        await self._store.transact(scope, work)


async def _reply(tx: Transaction, turn: Turn) -> Message | None:
    thread = await tx.thread(turn.thread_id)
    return None if thread is None else await tx.message(thread.id, reply_id(turn.id))

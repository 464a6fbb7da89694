"""Moves that are made once: a history goes back under a key, and whoever was cut off may ask again.

The key is claimed in the transaction that moves, so either both happened or neither did. A key is its user's own: what
another user calls theirs is another key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from threadline.core.errors import KeyReused, NotFound
from threadline.core.ids import check_id
from threadline.core.threads import Scope, Thread
from threadline.core.turns import Surface
from threadline.ports import Store, Transaction

_SURFACE: Surface = "api"


async def move_once(
    store: Store, scope: Scope, thread_id: str, key: str, what: str, move: Callable[[Transaction], Awaitable[Thread]]
) -> Thread:
    """Moves the thread, or gives it as it is now if that was done under this key. KeyReused if the key was used for
    another thread or for something else than `what`. NotFound."""
    asked = hashlib.sha256(msgspec.json.encode([check_id("thread", thread_id), what])).hexdigest()
    claimed = _claimed(scope, check_id("key", key))

    async def work(tx: Transaction) -> Thread:
        if await tx.claim_inbox(_SURFACE, claimed, fingerprint=asked) is not None:
            await tx.settle_inbox(_SURFACE, claimed, status="done")
            return await move(tx)
        earlier, found = await tx.inbox_row(_SURFACE, claimed), await tx.thread(thread_id)
        if earlier is None or earlier.fingerprint != asked:
            raise KeyReused(key)
        if found is None:
            raise NotFound("thread", thread_id)
        return found

    return await store.transact(scope, work)


def _claimed(scope: Scope, key: str) -> str:
    """What arrives is claimed in the whole tenant, and two users may choose the same key."""
    return f"{hashlib.sha256(scope.user_id.encode()).hexdigest()[:32]}:{key}"

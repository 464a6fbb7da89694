"""Handing over: what a process that ends leaves of its turns, so that another one goes on with them.

Whoever finds a lease without a holder knows that the turn was given up on purpose, and when: its agent was told to end,
and everything that was shown is stored. Of a process that died nobody can say that. A turn that still waited for its
thread is handed over as well, or nobody would know that it is still wanted.
"""

from __future__ import annotations

import logging

from threadline.core.errors import StoreFailed
from threadline.core.turns import Turn
from threadline.ports import Transaction
from threadline.turns.streams import LiveStream

log = logging.getLogger("threadline.turns")


async def hand_over(tx: Transaction, turn: Turn, stream: LiveStream) -> bool:
    """False if somebody wishes the turn to stop: then it is to end here."""
    try:
        if await tx.is_stop_requested(turn.id):
            return False
        await tx.put_chunks(turn.id, turn.fence, stream.unstored())
        await tx.release_lease(turn.id, turn.fence)
    except StoreFailed:
        # Then its lease runs out by itself, as if this process had died.
        log.warning("turn not handed over", extra={"turn_id": turn.id})
    return True


async def hand_over_waiting(tx: Transaction, turn: Turn, worker: str) -> None:
    """The same for one that waits for its lease. It may have got that in the very moment it was told to end."""
    try:
        standing = await tx.turn(turn.id)
        if standing is not None and (standing.status == "accepted" or standing.lease_owner == worker):
            await tx.release_lease(turn.id, standing.fence)
    except StoreFailed:
        log.warning("turn not handed over", extra={"turn_id": turn.id})

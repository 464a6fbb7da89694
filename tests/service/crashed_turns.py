"""What a crashed process leaves in the database, created without a crash."""

from __future__ import annotations

from threadline.bootstrap import Threadline
from threadline.core import events
from threadline.core.messages import user
from threadline.core.threads import Scope
from threadline.core.turns import Chunk, Turn
from threadline.turns.acceptance import TurnRequest


async def leave_a_dead_turn(threadline: Threadline, scope: Scope, state_key: str) -> Turn:
    """A turn that another worker leased and started to answer before it crashed."""
    request = TurnRequest(message=user("Hi"), surface="web", state_key=state_key)
    accepted = await threadline.turns.accept(scope, request)
    tx = threadline.store.scoped(scope)
    leased = await tx.lease_turn(accepted.turn.id, "gone", seconds=-1)
    assert leased is not None
    await tx.put_chunks(leased.id, leased.fence, [Chunk(1, events.to_json(events.TextDelta("I was about")))])
    return leased

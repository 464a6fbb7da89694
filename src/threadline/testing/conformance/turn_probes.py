"""Probes, as in `probes`, for turns that are accepted and finished in one step."""

from __future__ import annotations

from typing import Any

from threadline.core.ids import new_id
from threadline.core.threads import NewThread
from threadline.core.turns import Chunk, Lease, NewTurn, Turn, TurnEnd
from threadline.ports import Transaction
from threadline.testing.conformance.message_builders import user_message
from threadline.testing.conformance.probes import LATER, NOW, PROBES, Probe, probe
from threadline.testing.conformance.sample_data import Ids

__all__ = ["PROBES", "Probe"]


async def _accepted(tx: Transaction, new: NewTurn, message_id: str | None = None, **thread: Any) -> str | None:
    lease = Lease("thief", LATER)
    otherwise = NewThread(**thread) if thread else None
    stored = await tx.accept_at_once(new, user_message("forged", message_id), lease, otherwise=otherwise, title=None)
    return None if stored is None else stored[1].state_key


@probe("accept_at_once")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await _accepted(tx, NewTurn(new_id(), ids.thread_id + "-branch", "web"))


@probe("accept_at_once")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await _accepted(tx, NewTurn(new_id(), new_id(), "web"), state_key=ids.state_key)


@probe("accept_at_once")
async def _(tx: Transaction, ids: Ids) -> Any:
    new = NewTurn(new_id(), new_id(), "web", idempotency_key=ids.turn_key)
    return await _accepted(tx, new, ids.message_id, state_key=f"{ids.state_key}-more")


@probe("finish_at_once")
async def _(tx: Transaction, ids: Ids) -> Any:
    forged = Turn(
        ids.running_id, ids.user_id, ids.thread_id, "web", None, "running", None, None, 2, None, None, {}, {}, "w1",
        LATER, 1, NOW, None,
    )  # fmt: skip
    return await tx.finish_at_once(forged, TurnEnd("executed"), user_message("forged"), [Chunk(2, b"{}")])

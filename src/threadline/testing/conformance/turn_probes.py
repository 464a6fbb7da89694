"""Probes, as in `probes`, for the two commits of a turn."""

from __future__ import annotations

from typing import Any

from threadline.core.ids import new_id
from threadline.core.threads import NewThread
from threadline.core.turn_commits import AcceptRefusal, ArrivalClaim, FinishRefusal, ReplyDelivery, TurnAcceptance
from threadline.core.turns import Chunk, Lease, TurnEnd
from threadline.ports import Transaction
from threadline.testing.conformance.message_builders import clean_text, user_message
from threadline.testing.conformance.probes import PROBES, Probe, probe
from threadline.testing.conformance.sample_data import Ids

__all__ = ["PROBES", "Probe"]


async def _accept(tx: Transaction, message_id: str | None = None, **given: Any) -> str | None:
    """The state key of the thread that a forged request reached."""
    new = TurnAcceptance(
        turn_id=given.pop("turn_id", new_id()),
        surface="web",
        message=user_message("forged", message_id),
        lease=Lease("thief", 30),
        **given,
    )
    outcome = await tx.accept_turn(new)
    return None if isinstance(outcome, AcceptRefusal) else outcome.thread.state_key


@probe("accept_turn")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await _accept(tx, thread_id=ids.thread_id + "-branch")


@probe("accept_turn")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await _accept(tx, new_thread=NewThread(state_key=ids.state_key))


@probe("accept_turn")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await _accept(tx, ids.message_id, key=ids.turn_key, new_thread=NewThread(state_key=f"{ids.state_key}-more"))


@probe("accept_turn", in_tenant="None")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await _accept(tx, turn_id=ids.turn_id, new_thread=NewThread(state_key=f"{ids.state_key}-turn"))


@probe("accept_turn", in_tenant="None")
async def _(tx: Transaction, ids: Ids) -> Any:
    claim = ArrivalClaim("matrix", new_id(), "f", "c", "r", ids.place)
    return await _accept(tx, arrival=claim, new_thread=NewThread(state_key=f"{ids.state_key}-place"))


@probe("accept_turn", in_tenant="False")
async def _(tx: Transaction, ids: Ids) -> Any:
    own = await tx.create_thread(NewThread())
    await tx.bind("slack", own.id, own.id)
    claim = ArrivalClaim("slack", ids.inbox_key, "f", "c", "r", own.id)
    return (await _accept(tx, arrival=claim)) is not None


@probe("finish_turn")
async def _(tx: Transaction, ids: Ids) -> Any:
    outcome = await tx.finish_turn(
        ids.running_id,
        1,
        TurnEnd("executed"),
        reply=user_message("forged"),
        chunks=[Chunk(2, b"{}")],
        delivery=ReplyDelivery("slack", ids.inbox_key, (clean_text("forged"),)),
    )
    return None if isinstance(outcome, FinishRefusal) else outcome.status

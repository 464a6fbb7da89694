"""Probes of the operations for exports and imports of whole threads."""

from __future__ import annotations

from typing import Any

from threadline.core.history import PastTurn, ThreadDates
from threadline.ports import Transaction
from threadline.testing.conformance.message_builders import clean_text, create_thread_with
from threadline.testing.conformance.probes import LATER, NOW, asks, probe
from threadline.testing.conformance.sample_data import Ids
from threadline.testing.conformance.sign_in_probes import PROBES, Probe

__all__ = ["PROBES", "Probe"]

asks("past_turns", "thread_id")
asks("past_turns", "thread_id", after="turn")
asks("summaries", "thread_id")
asks("points_in", "thread_id")


def ended_turn(turn_id: str) -> PastTurn:
    return PastTurn(id=turn_id, surface="api", status="executed", created_at=NOW, finished_at=LATER)


@probe("add_turns")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.add_turns(ids.thread_id, [ended_turn("forged")])


@probe("add_saved_point")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.add_saved_point(ids.thread_id, "forged", 0, timeline_id=ids.timeline_id, created_at=NOW)


@probe("add_saved_point")
async def _(tx: Transaction, ids: Ids) -> Any:
    mine = await create_thread_with(tx, "mine")
    return await tx.add_saved_point(mine.id, "forged", 0, timeline_id=ids.timeline_id, created_at=NOW)


@probe("add_summary")
async def _(tx: Transaction, ids: Ids) -> Any:
    forged = clean_text("forged")
    return await tx.add_summary(ids.thread_id, 0, forged, timeline_id=ids.timeline_id, created_at=NOW)


@probe("add_summary")
async def _(tx: Transaction, ids: Ids) -> Any:
    mine, forged = await create_thread_with(tx, "mine"), clean_text("forged")
    return await tx.add_summary(mine.id, 0, forged, timeline_id=ids.timeline_id, created_at=NOW)


@probe("date_thread")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.date_thread(ids.thread_id, ThreadDates(LATER, archived_at=LATER, deleted_at=None, token_count=1))

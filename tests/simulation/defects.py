"""Planted defects: each replaces one piece of the product by a wrong one. The checker must find every one of them.

A check that cannot fail proves nothing. These are mistakes that a change could make, or that an earlier version made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tests.simulation.machine import Replacement
from threadline.core.channels import Sender
from threadline.core.ids import new_id
from threadline.core.platform_messages import Sent
from threadline.core.turns import Lease
from threadline.messaging.delivery_worker import DeliveryWorker
from threadline.messaging.inbox import Inbox
from threadline.messaging.receipts import Receipt
from threadline.stores.sqlite import turn_commits, turns
from threadline.turns.acceptance import Turns
from threadline.turns.journal import StoredJournal
from threadline.turns.recovery import AbandonedTurns

# Planting a defect means reaching into the product.
# ruff: noqa: SLF001


def _lease_without_holder(session: Any, turn_id: str, lease: Lease) -> Any:
    """Gives a lease to everybody, and forgets to raise the fence: two processes run one turn."""
    hold = turns.find_hold(session, turn_id)
    if hold is None or hold.status not in ("accepted", "running"):
        return None
    if session.row(turns._SQL["find_earlier_turn"], (session.tenant_id, hold.thread_no, hold.no)):
        return None
    session.run(
        "UPDATE turns SET status = 'running', lease_owner = ?, lease_until_us = 0, fence = 1 WHERE no = ?",
        (lease.worker, hold.no),
    )
    return turns.find_turn(session, turn_id)


async def _settle_then_send(worker: Any, delivery: Any) -> None:
    """Settles a delivery before it is sent."""
    await worker._queue.settle(delivery, Sent())
    await worker._send(delivery)


async def _acknowledge_then_store(inbox: Any, tenant_id: str, arrival: Any, correlation_id: str, **_: Any) -> Receipt:
    """Acknowledges a message before it is stored."""

    async def receive() -> None:
        await asyncio.sleep(0.5)
        await _receive(inbox, tenant_id, arrival, correlation_id)

    inbox.tasks = [*getattr(inbox, "tasks", ()), asyncio.create_task(receive())]
    return Receipt("accepted")


_receive = Inbox.receive


async def _run_unrecorded(journal: Any, call: Any, *, repeatable: bool) -> None:
    """Runs tools without storing the intent."""
    return


async def _keep_unrecorded(journal: Any, call_id: str, output: Any) -> None:
    return


async def _never_recover(abandoned: Any, scope: Any, turn: Any, runner: Any) -> bool:
    """Takes no turn over from a process that is gone."""
    return False


async def _everybody_is_alice(inbox: Any, tenant_id: str, arrival: Any, **_: Any) -> Sender:
    """Stores messages in another user's thread."""
    return Sender("alice", "verified", "member")


async def _receive_as_new(inbox: Any, tenant_id: str, arrival: Any, correlation_id: str, **_: Any) -> Receipt:
    """Does not recognise a message that is delivered again."""
    return await _receive(inbox, tenant_id, msgspec.structs.replace(arrival, key=new_id()), correlation_id)


async def _accept_without_key(turns: Any, scope: Any, request: Any, lease: Any = None) -> Any:
    """Does not recognise a request that is repeated."""
    return await _accept(turns, scope, msgspec.structs.replace(request, key=None), lease)


_accept = Turns.accept


def _lease_out_of_order(session: Any, turn_id: str, lease: Lease) -> Any:
    """Leases a turn while an earlier one of its thread is active."""
    hold = turns.find_hold(session, turn_id)
    if hold is None or hold.status != "accepted":
        return _lease_turn(session, turn_id, lease)
    session.run(turns._SQL["lease_turn"], (lease.worker, session.now_us() + int(lease.seconds * 1e6), hold.no))
    session.touch(turn_id)
    return turns.find_turn(session, turn_id)


_lease_turn = turns.lease_turn


def _replace_everywhere(name: str, value: Callable[..., Any]) -> list[Replacement]:
    return [(module, name, value) for module in (turns, turn_commits) if hasattr(module, name)]


DEFECTS: Mapping[str, list[Replacement]] = {
    "the store gives a lease to everybody": _replace_everywhere("lease_turn", _lease_without_holder),
    "the store leases turns out of order": _replace_everywhere("lease_turn", _lease_out_of_order),
    "the outbox settles before it sends": [(DeliveryWorker, "_deliver", _settle_then_send)],
    "the inbox acknowledges before it stores": [(Inbox, "receive", _acknowledge_then_store)],
    "the inbox takes every sender for alice": [(Inbox, "_sender", _everybody_is_alice)],
    "the inbox does not recognise a repeated delivery": [(Inbox, "receive", _receive_as_new)],
    "a repeated request is stored again": [(Turns, "accept", _accept_without_key)],
    "tools run unrecorded": [(StoredJournal, "begin", _run_unrecorded), (StoredJournal, "end", _keep_unrecorded)],
    "abandoned turns are not recovered": [(AbandonedTurns, "recover_turn", _never_recover)],
}

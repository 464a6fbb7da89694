"""Probes, as in `probes`, for values and hidden parts."""

from __future__ import annotations

from typing import Any

from threadline.core.hidden_parts import HiddenPart
from threadline.core.values import ValueAddress, ValueWrite
from threadline.ports import Transaction
from threadline.testing.conformance.message_builders import create_thread_with
from threadline.testing.conformance.probes import another_user, asks, probe
from threadline.testing.conformance.sample_data import Ids
from threadline.testing.conformance.turn_probes import PROBES, Probe

__all__ = ["PROBES", "Probe"]


@probe("read_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.read_values("thread", ids.thread_id, ids.namespace, [ids.value_key])


@probe("read_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.read_values("user", another_user(tx, ids), ids.namespace, [ids.value_key])


@probe("read_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.read_values("tenant", "", ids.namespace, [ids.value_key])


@probe("list_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.list_values("thread", ids.thread_id, ids.namespace)


@probe("list_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.list_values("user", another_user(tx, ids), ids.namespace, with_data=True)


@probe("value_namespaces")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.value_namespaces("thread", ids.thread_id)


@probe("value_namespaces")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.value_namespaces("user", another_user(tx, ids))


@probe("write_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    address = ValueAddress("thread", ids.thread_id, ids.namespace, ids.value_key)
    return await tx.write_values([ValueWrite(address, b"forged", 6)])


@probe("write_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    address = ValueAddress("user", another_user(tx, ids), ids.namespace, ids.value_key)
    return await tx.write_values([ValueWrite(address, None)])


@probe("write_values")
async def _(tx: Transaction, ids: Ids) -> Any:
    return len(await tx.write_values([ValueWrite(ValueAddress("tenant", "", "mine", "mine"), b"mine", 4)]))


asks("drop_expired_values")
asks("is_turn_hidden", "turn_id")


@probe("hide_parts")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.hide_parts(ids.thread_id, [HiddenPart(ids.timeline_id, 0)], turn_id="forged")


@probe("hide_parts")
async def _(tx: Transaction, ids: Ids) -> Any:
    mine = await create_thread_with(tx, "mine")
    return await tx.hide_parts(mine.id, [HiddenPart(ids.timeline_id, 0)])

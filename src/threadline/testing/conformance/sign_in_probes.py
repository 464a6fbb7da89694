"""Probes of the operations for sign-ins."""

from __future__ import annotations

from typing import Any

from threadline.core.sign_ins import NewSignIn
from threadline.ports import Transaction
from threadline.testing.conformance.probes import LATER, NOW, another_user, asks, probe
from threadline.testing.conformance.sample_data import Ids
from threadline.testing.conformance.value_probes import PROBES, Probe

__all__ = ["PROBES", "Probe"]

asks("sign_in_by_hash", "sign_in_hash")
asks("open_sign_in", "sign_in_hash", secret_hash=b"forged", expires_at=LATER)
asks("note_sign_in_use", "sign_in_id", used_at=LATER)
asks("drop_sign_ins", before=NOW)


@probe("add_sign_in")
async def _(tx: Transaction, ids: Ids) -> Any:
    forged = b"forged " + ids.sign_in_hash
    return await tx.add_sign_in(NewSignIn(ids.sign_in_id, forged, another_user(tx, ids), "admin", "link", LATER))


@probe("sign_ins")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.sign_ins(another_user(tx, ids))


@probe("revoke_sign_in")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.revoke_sign_in(another_user(tx, ids), ids.sign_in_id)


@probe("revoke_sign_ins")
async def _(tx: Transaction, ids: Ids) -> Any:
    return await tx.revoke_sign_ins(another_user(tx, ids))

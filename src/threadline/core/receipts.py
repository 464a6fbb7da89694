"""Receipts of erasures: what was removed, when, and on whose request.

A receipt is JSON that its reader keeps; the service stores none. The signature covers every other field, in the bytes
of `signed_bytes`, so that it can be verified without the service.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Literal

import msgspec

from threadline.core.errors import InvalidInput
from threadline.core.jsontext import parse_object

FORMAT = 1


class ReceiptSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`key` signs receipts of erasures; `threadline receipts key` makes one."""

    key: str = ""

    def __repr__(self) -> str:
        return f"<receipts, {'signed' if self.key else 'not signed'}>"


class ErasureReceipt(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`rows` counts the removed rows of each table. `public_key` and `signature` are base64 of Ed25519 values, both
    absent if the operator has set no key to sign with."""

    id: str
    kind: Literal["user", "tenant"]
    tenant: str
    requested_by: str
    erased_at: dt.datetime
    rows: dict[str, int]
    user: str | None = None
    public_key: str | None = None
    signature: str | None = None
    format: int = FORMAT

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    def signed_bytes(self) -> bytes:
        """Sorted keys, no white space, everything outside of ASCII escaped: the same bytes in every language."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return json.dumps(without_signature(fields), sort_keys=True, separators=(",", ":")).encode()


def without_signature(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "signature"}


def read_receipt(text: bytes) -> ErasureReceipt:
    """InvalidInput if it is not a receipt of a format that this version knows."""
    fields = parse_object(text, "receipt")
    if fields.get("format") != FORMAT:
        raise InvalidInput(f"receipt must have format {FORMAT}, got {fields.get('format')!r}: use a newer threadline")
    try:
        return msgspec.convert(fields, ErasureReceipt)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"this is not a receipt of an erasure: {exc}") from exc

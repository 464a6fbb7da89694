"""`threadline receipts …`: the key that signs receipts of erasures, and their verification."""

from __future__ import annotations

import argparse
from pathlib import Path

from threadline.cli.connection import load_settings
from threadline.cli.output import format_time, report
from threadline.cli.printable import printable
from threadline.core.errors import InvalidInput
from threadline.core.receipts import read_receipt
from threadline.signatures import new_signing_key, public_key_of, verify


async def make_key(args: argparse.Namespace) -> None:
    key = new_signing_key()
    report(args, {"key": key, "publicKey": public_key_of(key)}, key)


async def show_public_key(args: argparse.Namespace) -> None:
    key = load_settings(args).receipts.key
    if not key:
        raise InvalidInput("no key signs receipts: set THREADLINE_RECEIPTS__KEY to one of `threadline receipts key`")
    report(args, {"publicKey": public_key_of(key)}, public_key_of(key))


async def verify_receipt(args: argparse.Namespace) -> None:
    receipt = read_receipt(_read_file(args.file))
    verify(receipt, args.public_key)
    what = f"user {receipt.user} of tenant {receipt.tenant}" if receipt.user else f"tenant {receipt.tenant}"
    told = f"Valid: {printable(what)} erased on {format_time(receipt.erased_at)}, {receipt.total:,} rows"
    report(args, {"valid": True, "id": receipt.id, "rows": receipt.rows}, told)


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise InvalidInput(f"cannot read {printable(path)}: {exc.strerror}") from exc

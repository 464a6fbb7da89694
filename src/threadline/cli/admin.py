"""`threadline migrate|copy|backup|restore|compact|purge`: database administration."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from threadline import maintenance
from threadline.cli.confirmation import confirm_deletion
from threadline.cli.connection import load_settings
from threadline.cli.output import Progress, pluralize, report
from threadline.cli.printable import printable
from threadline.core.errors import InvalidInput
from threadline.core.receipts import ErasureReceipt
from threadline.settings import Settings
from threadline.stores.migrations import Migration


async def migrate(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    url = settings.database
    if args.dry_run:
        plan = await maintenance.plan_migration(url)
    else:
        plan = await maintenance.migrate(
            url, progress=_print_step, partitions=args.partitions, distribute=args.distribute
        )
        encrypted = (await maintenance.encrypt_secrets(settings)).encrypted
        if encrypted:
            print(f"Encrypted the settings of {pluralize(encrypted, 'agent')}", file=sys.stderr)
    steps = [f"{step.number:03} {step.name.replace('_', ' ')}" for step in plan.steps]
    steps += [f"functions of {subject}" for subject in plan.functions]
    steps += [f"repair: {statement}" for statement in plan.repairs]
    value = {"from": plan.current, "to": plan.target, "steps": steps, "dryRun": args.dry_run}
    for note in plan.notes:
        print(note, file=sys.stderr)
    if not steps:
        report(args, value, f"Nothing to do: the database is at version {plan.current}")
    elif args.dry_run:
        report(args, value, "Would apply:\n" + "\n".join(f"  {step}" for step in steps))
    else:
        migrated = f"Migrated from version {plan.current} to {plan.target}"
        repaired = f"Put back {pluralize(len(plan.repairs), 'missing owner, policy or grant')}"
        rest = "Applied changed SQL functions" if plan.functions else repaired
        report(args, value, migrated if plan.steps else rest)


def _print_step(step: Migration, done: int, total: int) -> None:
    print(f"{done + 1} of {total}: {step.name.replace('_', ' ')} …", file=sys.stderr)


async def copy(args: argparse.Namespace) -> None:
    progress = Progress("Copied rows")
    copied = await maintenance.copy(args.source, args.target, progress=progress)
    progress.close()
    rows = sum(copied.values())
    report(args, {"rows": copied}, f"Copied and verified {rows:,} rows in {len(copied)} tables")


async def backup(args: argparse.Namespace) -> None:
    progress = Progress("Backed up rows")
    target, key = Path(args.file), _read_key(args)
    copied = await maintenance.backup(_backup_settings(args), target, key=key, progress=progress)
    progress.close()
    rows = sum(copied.values())
    report(args, {"file": args.file, "rows": copied}, f"Backed up and verified {rows:,} rows: {args.file}")


async def restore(args: argparse.Namespace) -> None:
    progress = Progress("Restored rows")
    settings, key = _backup_settings(args), _read_key(args)
    rows = await maintenance.restore(Path(args.file), settings, key=key, dry_run=args.dry_run, progress=progress)
    progress.close()
    total = sum(rows.values())
    done = f"Verified {total:,} rows" if args.dry_run else f"Restored and verified {total:,} rows"
    report(args, {"file": args.file, "rows": rows, "dryRun": args.dry_run}, done)


def _backup_settings(args: argparse.Namespace) -> Settings:
    args.database = args.db or args.database
    return load_settings(args)


def _read_key(args: argparse.Namespace) -> str | None:
    if args.key_file is None:
        return None
    try:
        return Path(args.key_file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise InvalidInput(f"cannot read the key in {printable(args.key_file)}: {reason}") from exc


async def compact(args: argparse.Namespace) -> None:
    progress = Progress("Compacting, thousand steps")
    before, after = await maintenance.compact(load_settings(args).database, progress=progress)
    progress.close()
    report(args, {"bytesBefore": before, "bytes": after}, f"Compacted: {before:,} bytes before, {after:,} bytes after")


async def purge_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    confirm_deletion(args, f"all data of user {args.id} in tenant {settings.tenant}")
    _check_receipt_file(args)
    _report_erasure(args, await maintenance.purge_user(settings, settings.tenant, args.id))


async def purge_tenant(args: argparse.Namespace) -> None:
    confirm_deletion(args, f"all data of tenant {args.id}")
    _check_receipt_file(args)
    _report_erasure(args, await maintenance.purge_tenant(load_settings(args), args.id))


def _check_receipt_file(args: argparse.Namespace) -> None:
    """Before anything is deleted: afterwards the receipt could not be made again."""
    if args.receipt is None:
        return
    path = Path(args.receipt)
    if path.exists():
        raise InvalidInput(f"{printable(args.receipt)} exists: name a new file for the receipt")
    try:
        path.touch(exist_ok=False)
    except OSError as exc:
        raise InvalidInput(f"cannot write {printable(args.receipt)}: {exc.strerror}") from exc
    path.unlink()


def _report_erasure(args: argparse.Namespace, receipt: ErasureReceipt) -> None:
    if args.receipt is not None:
        Path(args.receipt).write_bytes(msgspec.json.format(msgspec.json.encode(receipt), indent=2) + b"\n")
    kinds = ", ".join(f"{rows:,} {table}" for table, rows in sorted(receipt.rows.items()))
    if args.receipt is not None and receipt.signature is None:
        print("The receipt is not signed: set THREADLINE_RECEIPTS__KEY, see threadline receipts key", file=sys.stderr)
    report(args, {"rows": receipt.total, "receipt": receipt}, f"Deleted {receipt.total:,} rows: {kinds}")

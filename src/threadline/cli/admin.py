"""`threadline migrate|copy|backup|compact|purge|doctor`: database administration."""

from __future__ import annotations

import argparse
import sys

from threadline import maintenance
from threadline.cli.connection import load_settings
from threadline.cli.output import Progress, pluralize, print_json, report
from threadline.cli.printable import printable, without_password
from threadline.core.errors import Refused, ThreadlineError
from threadline.ports import Finding
from threadline.stores.migrations import Migration

_UNHEALTHY = 1


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
    value = {"from": plan.current, "to": plan.target, "steps": steps, "dryRun": args.dry_run}
    if not steps:
        report(args, value, f"Nothing to do: the database is at version {plan.current}")
    elif args.dry_run:
        report(args, value, "Would apply:\n" + "\n".join(f"  {step}" for step in steps))
    else:
        migrated = f"Migrated from version {plan.current} to {plan.target}"
        report(args, value, migrated if plan.steps else "Applied changed SQL functions")


def _print_step(step: Migration, done: int, total: int) -> None:
    print(f"{done + 1} of {total}: {step.name.replace('_', ' ')} …", file=sys.stderr)


async def copy(args: argparse.Namespace) -> None:
    progress = Progress("Copied rows")
    copied = await maintenance.copy(args.source, args.target, progress=progress)
    progress.close()
    rows = sum(copied.values())
    report(args, {"rows": copied}, f"Copied and verified {rows:,} rows in {len(copied)} tables")


async def backup(args: argparse.Namespace) -> None:
    progress = Progress("Copied pages")
    await maintenance.backup(load_settings(args).database, args.file, progress=progress)
    progress.close()
    report(args, {"file": args.file}, f"Backed up to {args.file}")


async def compact(args: argparse.Namespace) -> None:
    progress = Progress("Compacting, thousand steps")
    before, after = await maintenance.compact(load_settings(args).database, progress=progress)
    progress.close()
    report(args, {"bytesBefore": before, "bytes": after}, f"Compacted: {before:,} bytes before, {after:,} bytes after")


async def doctor(args: argparse.Namespace) -> int:
    settings = load_settings(args)
    findings = await _find_problems(args)
    if args.json:
        print_json({"database": without_password(settings.database), "findings": findings})
    else:
        print(f"Database: {printable(without_password(settings.database))}")
        for finding in findings:
            print(f"{finding.level}: {printable(finding.what)}\n  → {printable(finding.remedy)}")
        if not findings:
            print("No problems found.")
    return _UNHEALTHY if any(finding.level == "error" for finding in findings) else 0


async def _find_problems(args: argparse.Namespace) -> list[Finding]:
    settings = load_settings(args)
    if not maintenance.database_exists(settings.database):
        return [Finding("warning", "no database yet", "start a chat to create it: threadline chat")]
    try:
        return await maintenance.check(settings)
    except ThreadlineError as exc:
        return [Finding("error", str(exc), "fix this, then run threadline doctor again")]


async def purge_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    _confirm(args, f"all data of user {args.id} in tenant {settings.tenant}")
    rows = await maintenance.purge_user(settings, settings.tenant, args.id)
    report(args, {"rows": rows}, f"Deleted {rows:,} rows")


async def purge_tenant(args: argparse.Namespace) -> None:
    _confirm(args, f"all data of tenant {args.id}")
    rows = await maintenance.purge_tenant(load_settings(args), args.id)
    report(args, {"rows": rows}, f"Deleted {rows:,} rows")


def _confirm(args: argparse.Namespace, what: str) -> None:
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"this permanently deletes {printable(what)}: add --yes to confirm")
    if input(f"Permanently delete {printable(what)}? Type yes to confirm: ").strip() != "yes":
        raise Refused("not confirmed, nothing was deleted")

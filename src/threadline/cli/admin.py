"""`threadline migrate|copy|backup|compact|purge|doctor`: for whoever runs the database."""

from __future__ import annotations

import argparse
import sys

from threadline import maintenance as operating
from threadline.cli.connection import settings_of
from threadline.cli.output import Progress, print_json, say
from threadline.cli.printable import shown, without_password
from threadline.core.errors import Refused, ThreadlineError
from threadline.ports import Finding
from threadline.stores.migrations import Migration

_UNHEALTHY = 1


async def migrate(args: argparse.Namespace) -> None:
    url = settings_of(args).database
    if args.dry_run:
        plan = await operating.plan_migration(url)
    else:
        plan = await operating.migrate(url, progress=_announce, partitions=args.partitions, distribute=args.distribute)
    steps = [f"{step.number:03} {step.name.replace('_', ' ')}" for step in plan.steps]
    steps += [f"functions of {subject}" for subject in plan.functions]
    value = {"from": plan.current, "to": plan.target, "steps": steps, "dryRun": args.dry_run}
    if not steps:
        say(args, value, f"Nothing to do: the database has version {plan.current}")
    elif args.dry_run:
        say(args, value, "Would do:\n" + "\n".join(f"  {step}" for step in steps))
    else:
        done = (
            f"Migrated from version {plan.current} to {plan.target}" if plan.steps else "Applied changed SQL functions"
        )
        say(args, value, done)


def _announce(step: Migration, done: int, total: int) -> None:
    print(f"{done + 1} of {total}: {step.name.replace('_', ' ')} …", file=sys.stderr)


async def copy(args: argparse.Namespace) -> None:
    progress = Progress("Copied rows")
    copied = await operating.copy(args.source, args.target, progress=progress)
    progress.close()
    rows = sum(copied.values())
    say(args, {"rows": copied}, f"Copied and verified {rows:,} rows of {len(copied)} tables")


async def backup(args: argparse.Namespace) -> None:
    progress = Progress("Copied pages")
    await operating.backup(settings_of(args).database, args.file, progress=progress)
    progress.close()
    say(args, {"file": args.file}, f"Backed up to {args.file}")


async def compact(args: argparse.Namespace) -> None:
    progress = Progress("Thousands of steps")
    before, after = await operating.compact(settings_of(args).database, progress=progress)
    progress.close()
    say(args, {"bytesBefore": before, "bytes": after}, f"Wrote the file anew: {before:,} bytes before, {after:,} now")


async def doctor(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    findings = await _findings(args)
    if args.json:
        print_json({"database": without_password(settings.database), "findings": findings})
    else:
        print(f"Database: {shown(without_password(settings.database))}")
        for finding in findings:
            print(f"{finding.level}: {shown(finding.what)}\n  → {shown(finding.remedy)}")
        if not findings:
            print("Everything is in order.")
    return _UNHEALTHY if any(finding.level == "error" for finding in findings) else 0


async def _findings(args: argparse.Namespace) -> list[Finding]:
    settings = settings_of(args)
    if not operating.database_exists(settings.database):
        return [Finding("warning", "there is no database yet", "it is made with the first thread: threadline chat")]
    try:
        return await operating.check(settings)
    except ThreadlineError as exc:
        return [Finding("error", str(exc), "once that is mended, run threadline doctor again")]


async def purge_user(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    _confirm(args, f"everything of user {args.id} in tenant {settings.tenant}")
    rows = await operating.purge_user(settings, settings.tenant, args.id)
    say(args, {"rows": rows}, f"Removed {rows:,} rows")


async def purge_tenant(args: argparse.Namespace) -> None:
    _confirm(args, f"everything of tenant {args.id}")
    rows = await operating.purge_tenant(settings_of(args), args.id)
    say(args, {"rows": rows}, f"Removed {rows:,} rows")


def _confirm(args: argparse.Namespace, what: str) -> None:
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"this removes {shown(what)} for good: say --yes to mean it")
    if input(f"Remove {shown(what)} for good? Type yes: ").strip() != "yes":
        raise Refused("nothing was removed")

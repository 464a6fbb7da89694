"""`threadline retention …`: what the policy of a tenant removes, and legal holds."""

from __future__ import annotations

import argparse

import msgspec

from threadline.cli.admin_arguments import RETENTION_RULES
from threadline.cli.confirmation import confirm_deletion
from threadline.cli.connection import load_settings
from threadline.cli.output import format_time, print_json, print_table, report
from threadline.cli.printable import printable
from threadline.core.checks import check_range
from threadline.core.retention import MAX_DAYS, LegalHold, RetentionSettings
from threadline.maintenance import administering
from threadline.settings import Settings


async def apply_policy(args: argparse.Namespace) -> None:
    settings = _with_days_of(args, load_settings(args))
    async with administering(settings, settings.tenant) as administration:
        plan = await administration.retention.plan()
        threads = plan.threads if args.dry_run else await administration.retention.apply()
    policy = msgspec.structs.asdict(plan.policy)
    kinds = ", ".join(f"{count:,} by {rule}" for rule, count in sorted(threads.items())) or "none"
    verb = "Would purge" if args.dry_run else "Purged"
    shown = f"{verb} {sum(threads.values()):,} threads of tenant {settings.tenant} ({kinds})"
    if set(policy.values()) == {None}:
        shown = f"Tenant {settings.tenant} has no retention policy: set [retention] in the settings, or name days"
    report(args, {"policy": policy, "threads": threads, "dryRun": args.dry_run}, shown)


def _with_days_of(args: argparse.Namespace, settings: Settings) -> Settings:
    """The settings with the days that the command line names. Settings cannot say 0 days, because the service purges
    without asking; a terminal can ask."""
    named = {rule: days for rule in RETENTION_RULES if (days := getattr(args, rule)) is not None}
    for rule, days in named.items():
        check_range(f"--{rule}", days, 0, MAX_DAYS)
    if 0 in named.values() and not args.dry_run:
        subjects = ["audit entries" if rule == "audit" else f"threads ({rule})" for rule in named if named[rule] == 0]
        confirm_deletion(args, f"all {' and '.join(subjects)} of tenant {settings.tenant}, however new")
    policy = msgspec.structs.replace(settings.retention.policy_of(settings.tenant), **named)
    retention = RetentionSettings(*msgspec.structs.astuple(policy))
    return msgspec.structs.replace(settings, retention=retention)


async def add_hold(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        hold = await administration.retention.add_hold(args.reason, user_id=args.of, thread_id=args.thread)
    report(args, _describe(hold), f"Added hold {hold.id} on {printable(_subject(hold))}")


async def list_holds(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        holds = await administration.retention.holds()
    if args.json:
        print_json({"holds": [_describe(hold) for hold in holds]})
        return
    rows = [(hold.id, format_time(hold.created_at), hold.created_by, _subject(hold), hold.reason) for hold in holds]
    print_table(("id", "since", "by", "on", "reason"), rows, empty="No legal holds.")


async def release_hold(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        await administration.retention.release(args.id)
    report(args, {"released": args.id}, f"Released hold {args.id}")


def _subject(hold: LegalHold) -> str:
    if hold.thread_id is not None:
        return f"thread {hold.thread_id}"
    return "the tenant" if hold.user_id is None else f"user {hold.user_id}"


def _describe(hold: LegalHold) -> dict[str, object]:
    return {
        "id": hold.id,
        "reason": hold.reason,
        "createdBy": hold.created_by,
        "createdAt": hold.created_at,
        "user": hold.user_id,
        "threadId": hold.thread_id,
    }

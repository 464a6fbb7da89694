"""`threadline channels …`: credentials, deliveries and checks of messaging platforms."""

from __future__ import annotations

import argparse
import datetime as dt
import getpass
import sys
from collections.abc import Iterable

from threadline.cli.connection import admin_scope, load_settings, open_threadline
from threadline.cli.output import format_time, print_json, print_table, report
from threadline.cli.printable import printable
from threadline.clock import SystemClock
from threadline.core.channels import InboxRow, OutboxRow
from threadline.core.durations import parse_duration
from threadline.core.errors import InvalidInput
from threadline.messaging.inbox_rows import list_inbox, unread_reason
from threadline.net.addresses import parse_url
from threadline.ports import Channel

_UNHEALTHY = 1


async def set_credentials(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        credentials = threadline.messaging.credentials
        secrets = _read_secrets(credentials.channel(args.platform))
        stored = await credentials.put(admin_scope(threadline), args.platform, secrets)
    report(args, {"platform": stored.platform, "keyId": stored.key_id}, f"Stored, encrypted with key {stored.key_id!r}")


def _read_secrets(channel: Channel) -> dict[str, str]:
    """Prompts without echo, or reads NAME=VALUE lines from a pipe. Arguments would be visible in process lists."""
    if sys.stdin.isatty():
        asked = {name: getpass.getpass(_prompt(channel, name, where)) for name, where in channel.secret_names.items()}
        return {name: value.strip() for name, value in asked.items() if value.strip()}
    return _parse_pairs(sys.stdin)


def _prompt(channel: Channel, name: str, where: str) -> str:
    is_needed = all(name in needed for needed in channel.sufficient_secrets)
    return f"{name} ({where}): " if is_needed else f"{name} ({where}; press Enter to leave it out): "


def _parse_pairs(lines: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if line and not equals:
            raise InvalidInput(f"line {number} of standard input must be NAME=VALUE")
        if line:
            pairs[name.strip()] = value.strip()
    return pairs


async def list_credentials(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        stored = await threadline.messaging.credentials.listed(admin_scope(threadline))
    if args.json:
        listed = [{"platform": each.platform, "keyId": each.key_id, "updatedAt": each.updated_at} for each in stored]
        print_json({"credentials": listed})
        return
    rows = [(each.platform, each.key_id, format_time(each.updated_at)) for each in stored]
    empty = "No credentials yet. Set some: threadline channels credentials set slack"
    print_table(("platform", "key", "set"), rows, empty=empty)


async def remove_credentials(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        removed = await threadline.messaging.credentials.delete(admin_scope(threadline), args.platform)
    report(args, {"removed": removed}, f"Removed {args.platform}" if removed else f"No credentials for {args.platform}")


async def doctor(args: argparse.Namespace) -> int:
    async with open_threadline(args) as threadline:
        settings = threadline.settings
        diagnosing = threadline.messaging.open_diagnosis(
            threadline.directory, settings.agent, serves_public_names=settings.service.requires_authentication
        )
        findings = await diagnosing.findings(settings.tenant)
    if args.json:
        print_json({"findings": findings})
    for finding in () if args.json else findings:
        print(f"{finding.level}: {printable(finding.what)}\n  → {printable(finding.remedy)}")
    if not findings and not args.json:
        print("No problems found.")
    return _UNHEALTHY if any(finding.level == "error" for finding in findings) else 0


async def print_manifest(args: argparse.Namespace) -> None:
    from threadline.channels.slack_manifest import build_manifest  # noqa: PLC0415 - an extra

    tenant, webhook = load_settings(args).tenant, None
    if args.url is not None:
        if parse_url(args.url).scheme != "https":
            raise InvalidInput(f"--url must begin with https://, got {args.url!r}: Slack delivers to no other address")
        webhook = f"{args.url.rstrip('/')}/api/v1/tenants/{tenant}/channels/slack/webhook"
    print_json(build_manifest(args.name, webhook))


async def list_inbox_rows(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        rows = await list_inbox(
            threadline.store, admin_scope(threadline), status=args.status, platform=args.platform, limit=args.limit
        )
    if args.json:
        print_json({"arrivals": [_describe_arrival(row) for row in rows]})
        return
    cells = [
        (
            row.key,
            row.platform,
            row.status,
            row.decision or "",
            row.owner_id or "",
            format_time(row.created_at),
            unread_reason(row) or "",
        )
        for row in rows
    ]
    head = ("key", "platform", "status", "decision", "user", "since", "reason")
    print_table(head, cells, empty="Nothing has arrived.")


def _describe_arrival(row: InboxRow) -> dict[str, object]:
    return {
        "key": row.key,
        "platform": row.platform,
        "status": row.status,
        "decision": row.decision,
        "user": row.owner_id,
        "turn": row.turn_id,
        "correlationId": row.correlation_id,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
        "reason": unread_reason(row),
    }


async def list_outbox(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        rows = await threadline.messaging.outbox.list_rows(
            admin_scope(threadline), status=args.status, platform=args.platform, limit=args.limit
        )
    if args.json:
        print_json({"deliveries": [_describe(row) for row in rows]})
        return
    cells = [
        (row.id, row.platform, row.status, str(row.attempts), format_time(row.created_at), row.last_error or "")
        for row in rows
    ]
    print_table(("id", "platform", "status", "attempts", "since", "last error"), cells, empty="No deliveries.")


def _describe(row: OutboxRow) -> dict[str, object]:
    """Everything but the text, which is private to its recipient."""
    return {
        "id": row.id,
        "platform": row.platform,
        "user": row.owner_id,
        "recipient": row.recipient,
        "status": row.status,
        "attempts": row.attempts,
        "lastError": row.last_error,
        "createdAt": row.created_at,
        "sentAt": row.sent_at,
    }


async def show_backlog(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        backlog = await threadline.messaging.outbox.backlog(admin_scope(threadline))
    if args.json:
        print_json({"backlog": backlog})
        return
    cells = [
        (each.platform, each.status, str(each.count), format_time(each.oldest_at), each.last_error or "")
        for each in backlog
    ]
    print_table(("platform", "status", "count", "oldest", "error"), cells, empty="Everything is delivered.")


async def requeue(args: argparse.Namespace) -> None:
    has_filter = args.all or args.since is not None
    if (args.id is None) != has_filter:
        raise InvalidInput("give either the id of a delivery, or --all or --since TIME")
    if args.id is not None and (args.platform or args.status):
        raise InvalidInput("--platform and --status can be used only with --all or --since")
    since = None if args.since is None else _parse_since(args.since)
    async with open_threadline(args) as threadline:
        outbox, scope = threadline.messaging.outbox, admin_scope(threadline)
        if args.id is not None:
            row = await outbox.requeue(scope, args.id)
            report(args, {"requeued": row.id}, f"Requeued {row.id}: a running service delivers it")
            return
        count = await outbox.requeue_all(scope, status=args.status, platform=args.platform, since=since)
    what, them = ("delivery", "it") if count == 1 else ("deliveries", "them")
    then = f": a running service delivers {them}" if count else ""
    report(args, {"requeued": count}, f"Requeued {count} {what}{then}")


def _parse_since(text: str) -> dt.datetime:
    """A duration before now, or a time with a zone."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return SystemClock().now() - parse_duration(text)
    if moment.tzinfo is None:
        raise InvalidInput(f"--since must have a time zone, such as {text}Z, or be a duration such as 6h")
    return moment.astimezone(dt.UTC)

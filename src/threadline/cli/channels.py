"""`threadline channels …`: what the operator of messaging platforms needs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import signal
import sys
from collections.abc import Iterable, Iterator

from threadline.bootstrap import Threadline
from threadline.cli.connection import opened
from threadline.cli.output import counted, print_json, print_table, say, when
from threadline.cli.printable import shown
from threadline.core.channels import OutboxRow
from threadline.core.errors import InvalidInput, NotFound, SettingsInvalid
from threadline.core.threads import Scope
from threadline.messaging.polling import Polling
from threadline.ports import Channel
from threadline.vault import new_key

_UNHEALTHY = 1


def _admin(threadline: Threadline) -> Scope:
    """Whoever can open the database may do what an administrator may."""
    return Scope(threadline.settings.tenant, threadline.settings.user, "admin")


async def make_key(args: argparse.Namespace) -> None:
    key = new_key()
    say(args, {"key": key}, key)


async def set_credentials(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        credentials = threadline.messaging.credentials
        secrets = _asked(credentials.channel(args.platform))
        kept = await credentials.put(_admin(threadline), args.platform, secrets)
    say(args, {"platform": kept.platform, "keyId": kept.key_id}, f"Kept, sealed under the key {kept.key_id!r}")


def _asked(channel: Channel) -> dict[str, str]:
    """From the keyboard, unseen; or NAME=VALUE lines from standard input. Never from the command line, which others
    can see."""
    if sys.stdin.isatty():
        return {name: getpass.getpass(f"{name} ({where}): ").strip() for name, where in channel.secret_names.items()}
    return _pairs(sys.stdin)


def _pairs(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        name, given, value = line.partition("=")
        if line and not given:
            raise InvalidInput(f"line {number} of standard input is not NAME=VALUE")
        if line:
            found[name.strip()] = value.strip()
    return found


async def list_credentials(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        kept = await threadline.messaging.credentials.listed(_admin(threadline))
    if args.json:
        listed = [{"platform": each.platform, "keyId": each.key_id, "updatedAt": each.updated_at} for each in kept]
        print_json({"credentials": listed})
        return
    rows = [(each.platform, each.key_id, when(each.updated_at)) for each in kept]
    empty = "No credentials yet. Set some: threadline channels credentials set slack"
    print_table(("platform", "key", "set"), rows, empty=empty)


async def remove_credentials(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        gone = await threadline.messaging.credentials.delete(_admin(threadline), args.platform)
    say(args, {"removed": gone}, f"Removed {args.platform}" if gone else f"{args.platform} had none")


async def rotate(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        done = await threadline.messaging.credentials.rotate()
    sentence = f"Sealed anew under the current key: {counted(done.sealed, 'set')} of credentials"
    if done.unreadable:
        sentence += f"; {done.unreadable} that no key opens are left as they are: set them again"
    say(args, {"sealed": done.sealed, "unreadable": done.unreadable}, sentence)


async def doctor(args: argparse.Namespace) -> int:
    async with opened(args) as threadline:
        settings = threadline.settings
        diagnosing = threadline.messaging.diagnosing(threadline.directory, settings.agent)
        findings = await diagnosing.findings(settings.tenant)
    if args.json:
        print_json({"findings": findings})
    for finding in () if args.json else findings:
        print(f"{finding.level}: {shown(finding.what)}\n  → {shown(finding.remedy)}")
    if not findings and not args.json:
        print("Everything is in order.")
    return _UNHEALTHY if any(finding.level == "error" for finding in findings) else 0


async def list_outbox(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        rows = await threadline.messaging.outbox.listed(_admin(threadline), status=args.status, limit=args.limit)
    if args.json:
        print_json({"deliveries": [_described(row) for row in rows]})
        return
    cells = [
        (row.id, row.platform, row.status, str(row.attempts), when(row.created_at), row.last_error or "")
        for row in rows
    ]
    print_table(("id", "platform", "status", "tries", "since", "last error"), cells, empty="Nothing here.")


def _described(row: OutboxRow) -> dict[str, object]:
    """Without what it says: that is its recipient's."""
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


async def requeue(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        row = await threadline.messaging.outbox.requeue(_admin(threadline), args.id)
    say(args, {"requeued": row.id}, f"Waits again: {row.id}. A running service delivers it.")


async def poll(args: argparse.Namespace) -> None:
    """Asks, answers and delivers in this one process, until told to end."""
    async with opened(args) as threadline:
        settings = threadline.settings
        polling = threadline.messaging.polling(threadline.inbox, args.platform)
        with _naming_the_remedy(args.platform):
            await threadline.messaging.credentials.open(settings.tenant, args.platform)
        running = asyncio.create_task(_poll(threadline, polling))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        print(f"Asking {args.platform} for what arrives, for the tenant {settings.tenant}", flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await threadline.runner.close(settings.service.grace_seconds)
        await threadline.messaging.close()


@contextlib.contextmanager
def _naming_the_remedy(platform: str) -> Iterator[None]:
    try:
        yield
    except NotFound as exc:
        raise SettingsInvalid(f"{platform} has no credentials: threadline channels credentials set {platform}") from exc


async def _poll(threadline: Threadline, polling: Polling) -> None:
    settings = threadline.settings
    tasks = [
        asyncio.create_task(work)
        for work in (
            polling.run(settings.tenant),
            threadline.messaging.run(),
            threadline.recovery.run(settings.service.recovery_seconds),
        )
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

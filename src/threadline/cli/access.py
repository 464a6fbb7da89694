"""`threadline token …` and `threadline audit …`: API tokens for the service, and the log of administrative actions."""

from __future__ import annotations

import argparse
import datetime as dt
import sys

from msgspec import UNSET, UnsetType

from threadline.cli.connection import load_settings
from threadline.cli.output import format_time, print_json, print_table, report
from threadline.cli.printable import printable
from threadline.cli.thread_ids import find_part
from threadline.clock import SystemClock
from threadline.core.access import ApiToken
from threadline.core.durations import parse_duration
from threadline.core.errors import InvalidInput, quote
from threadline.maintenance import administering


async def create_token(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    expires_at = _expiry(args.expires)
    async with administering(settings, settings.tenant) as administration:
        token, text = await administration.create_token(
            settings.user, name=args.name, role=args.role, expires_at=expires_at, acts_for_users=args.acts_for_users
        )
    if args.json:
        print_json({"token": text, **_describe(token)})
        return
    print(text, flush=True)
    # On standard error, so that a script that captures the output gets the token and nothing else.
    acting = ", may act for any user" if token.acts_for_users else ""
    described = f"user {printable(token.owner_id)}, tenant {settings.tenant}, role {token.role}{acting}"
    print(f"Created token {token.id}: {described}. Store it now: it is not shown again.", file=sys.stderr)


def _expiry(given: str | None) -> dt.datetime | UnsetType | None:
    if given is None:
        return UNSET
    if given == "never":
        return None
    lifetime = parse_duration(given)
    if not lifetime:
        raise InvalidInput(f"--expires must be more than 0, or never, got {quote(given)}")
    return SystemClock().now() + lifetime


async def list_tokens(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        tokens = await administration.tokens()
    if args.json:
        print_json({"tokens": [_describe(token) for token in tokens]})
        return
    now = SystemClock().now()
    rows = [
        (
            token.id,
            token.owner_id,
            f"{token.role}, acts for users" if token.acts_for_users else token.role,
            "active" if token.is_valid(now) else "revoked" if token.revoked_at else "expired",
            format_time(token.expires_at) if token.expires_at else "never",
            format_time(token.last_used_at) if token.last_used_at else "never",
            token.name,
        )
        for token in tokens
    ]
    headings = ("id", "user", "role", "state", "expires", "last used", "name")
    print_table(headings, rows, empty="No tokens yet. Create one: threadline token create --user NAME")


async def revoke_token(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        token_id = find_part(args.id, [token.id for token in await administration.tokens()], "token")
        await administration.revoke_token(token_id)
    report(args, {"revoked": token_id}, f"Revoked {token_id}")


async def list_acts(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        acts = await administration.acts(limit=args.limit, before=args.before)
    if args.json:
        print_json({"acts": acts})
        return
    rows = [(act.id, format_time(act.created_at), act.actor_id, act.act, act.target) for act in acts]
    print_table(("id", "when", "who", "action", "target"), rows, empty="No audit entries yet.")


def _describe(token: ApiToken) -> dict[str, object]:
    return {
        "id": token.id,
        "user": token.owner_id,
        "role": token.role,
        "actsForUsers": token.acts_for_users,
        "name": token.name,
        "createdAt": token.created_at,
        "expiresAt": token.expires_at,
        "lastUsedAt": token.last_used_at,
        "revokedAt": token.revoked_at,
    }

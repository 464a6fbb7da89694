"""`threadline token …` and `threadline audit …`: who may use the service, and what administrators did."""

from __future__ import annotations

import argparse
import sys

from threadline.cli.connection import settings_of
from threadline.cli.output import print_json, print_table, say, when
from threadline.cli.printable import shown
from threadline.clock import SystemClock
from threadline.core.access import ApiToken
from threadline.core.durations import parse_duration
from threadline.maintenance import administering


async def create_token(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    expires_at = SystemClock().now() + parse_duration(args.expires) if args.expires else None
    async with administering(settings, settings.tenant) as administration:
        token, text = await administration.create_token(
            settings.user, name=args.name, role=args.role, expires_at=expires_at, acts_for_users=args.acts_for_users
        )
    if args.json:
        print_json({"token": text, **_described(token)})
        return
    print(text, flush=True)
    # Apart from the token, so that a script can take that and nothing else.
    whom = f"{shown(token.owner_id)}{', and for any user it names,' if token.acts_for_users else ''}"
    acts = f"acts for {whom} in {settings.tenant} as {token.role}"
    print(f"Token {token.id} {acts}. It is not shown again.", file=sys.stderr)


async def list_tokens(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    async with administering(settings, settings.tenant) as administration:
        tokens = await administration.tokens()
    if args.json:
        print_json({"tokens": [_described(token) for token in tokens]})
        return
    now = SystemClock().now()
    rows = [
        (
            token.id,
            token.owner_id,
            f"{token.role}, acts for users" if token.acts_for_users else token.role,
            "works" if token.is_valid(now) else "revoked" if token.revoked_at else "expired",
            when(token.last_used_at) if token.last_used_at else "never",
            token.name,
        )
        for token in tokens
    ]
    headings = ("id", "user", "role", "state", "last used", "name")
    print_table(headings, rows, empty="No tokens yet. Make one: threadline token create --user NAME")


async def revoke_token(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    async with administering(settings, settings.tenant) as administration:
        await administration.revoke_token(args.id)
    say(args, {"revoked": args.id}, f"Revoked {args.id}")


async def list_acts(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    async with administering(settings, settings.tenant) as administration:
        acts = await administration.acts(limit=args.limit, before=args.before)
    if args.json:
        print_json({"acts": acts})
        return
    rows = [(act.id, when(act.created_at), act.actor_id, act.act, act.target) for act in acts]
    print_table(("id", "when", "who", "what", "to what"), rows, empty="Nothing on record yet.")


def _described(token: ApiToken) -> dict[str, object]:
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

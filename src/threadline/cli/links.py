"""`threadline link …`: links between the user and accounts on messaging platforms."""

from __future__ import annotations

import argparse

from threadline.cli.connection import open_threadline, user_scope
from threadline.cli.output import format_time, print_json, print_table, report


async def make_code(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        code = await threadline.messaging.links.new_code(user_scope(threadline), args.platform)
    if args.json:
        print_json({"code": code.code, "expiresAt": code.expires_at})
        return
    print(code.code)
    where = args.platform or "the platform"
    print(f"Send this to the bot on {where} before {format_time(code.expires_at)}: !link {code.code}")


async def list_links(args: argparse.Namespace) -> None:
    async with open_threadline(args, must_write=False) as threadline:
        links = await threadline.messaging.links.listed(user_scope(threadline))
    if args.json:
        print_json({"links": links})
        return
    rows = [(link.platform, link.platform_user_id, link.state, format_time(link.updated_at)) for link in links]
    print_table(
        ("platform", "account", "state", "since"),
        rows,
        empty="No linked accounts yet. Create a code: threadline link code",
    )


async def remove_link(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        removed = await threadline.messaging.links.remove(user_scope(threadline), args.platform, args.account)
    sentence = "Unlinked" if removed else "Not linked:"
    report(args, {"removed": removed}, f"{sentence} {args.account} on {args.platform}")

"""`threadline link …`: accounts on messaging platforms that are linked with a user."""

from __future__ import annotations

import argparse

from threadline.cli.connection import opened, scope_of
from threadline.cli.output import print_json, print_table, say, when


async def make_code(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        made = await threadline.messaging.links.new_code(scope_of(threadline), args.platform)
    if args.json:
        print_json({"code": made.code, "expiresAt": made.expires_at})
        return
    print(made.code)
    where = args.platform or "the platform"
    print(f"Send this to the bot on {where}, until {when(made.expires_at)}: !link {made.code}")


async def list_links(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        links = await threadline.messaging.links.listed(scope_of(threadline))
    if args.json:
        print_json({"links": links})
        return
    rows = [(link.platform, link.platform_user_id, link.state, when(link.updated_at)) for link in links]
    print_table(("platform", "account", "state", "since"), rows, empty="No links yet. Make one: threadline link code")


async def remove_link(args: argparse.Namespace) -> None:
    async with opened(args) as threadline:
        was_there = await threadline.messaging.links.remove(scope_of(threadline), args.platform, args.account)
    sentence = "Unlinked" if was_there else "Was not linked:"
    say(args, {"removed": was_there}, f"{sentence} {args.account} on {args.platform}")

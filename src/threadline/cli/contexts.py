"""`threadline context …`: the text you pinned for an agent, which goes first into every prompt for it."""

from __future__ import annotations

import argparse
import sys

from threadline.cli.connection import opened, scope_of
from threadline.cli.output import print_json, say
from threadline.cli.printable import shown


async def show_context(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        snapshot = await tl.contexts(scope_of(tl)).get(args.agent or tl.settings.agent)
    if args.json:
        print_json(snapshot)
    else:
        print(shown(snapshot.context, multiline=True))


async def set_context(args: argparse.Namespace) -> None:
    text = sys.stdin.read() if args.text == "-" else args.text
    async with opened(args) as tl:
        snapshot = await tl.contexts(scope_of(tl)).set(args.agent or tl.settings.agent, text)
    say(args, snapshot, f"Pinned for {snapshot.agent_id}: {len(snapshot.context)} characters")


async def clear_context(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        cleared = await tl.contexts(scope_of(tl)).clear(args.agent or tl.settings.agent)
    say(args, {"cleared": cleared}, "Cleared" if cleared else "Nothing was pinned")

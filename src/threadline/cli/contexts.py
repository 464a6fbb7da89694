"""`threadline context …`: the text you pinned for an agent, which goes first into every prompt for it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from threadline.cli.opening import opened, scope_of
from threadline.cli.output import print_json, say, shown


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    group = commands.add_parser("context", help="the text pinned for an agent")
    verbs = group.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, run, text in (
        ("show", show_context, "what is pinned"),
        ("set", set_context, "pin a text, instead of what was pinned"),
        ("clear", clear_context, "pin nothing"),
    ):
        parser = verbs.add_parser(name, help=text, description=text.capitalize() + ".", parents=[common])
        parser.set_defaults(run=run)
        parser.add_argument("--agent", metavar="ID", help="(default: the agent of the settings)")
        parser.add_argument("--json", action="store_true", help="print JSON")
        if name == "set":
            parser.add_argument("text", help="the text, or - to read standard input")


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

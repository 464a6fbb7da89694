"""`threadline context …`: the text pinned for an agent, which is put first in every prompt to it."""

from __future__ import annotations

import argparse
import sys

from threadline.cli.connection import open_threadline, user_scope
from threadline.cli.output import print_json, report
from threadline.cli.printable import printable


async def show_context(args: argparse.Namespace) -> None:
    async with open_threadline(args, must_write=False) as tl:
        snapshot = await tl.contexts(user_scope(tl)).get(args.agent or tl.settings.agent)
    if args.json:
        print_json(snapshot)
    else:
        print(printable(snapshot.context, multiline=True))


async def set_context(args: argparse.Namespace) -> None:
    text = sys.stdin.read() if args.text == "-" else args.text
    async with open_threadline(args) as tl:
        snapshot = await tl.contexts(user_scope(tl)).set(args.agent or tl.settings.agent, text)
    report(args, snapshot, f"Pinned for {snapshot.agent_id}: {len(snapshot.context)} characters")


async def clear_context(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        cleared = await tl.contexts(user_scope(tl)).clear(args.agent or tl.settings.agent)
    report(args, {"cleared": cleared}, "Cleared" if cleared else "Nothing was pinned")

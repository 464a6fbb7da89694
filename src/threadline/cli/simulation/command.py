"""`threadline channels simulate`: write to the bot as somebody on Slack, Telegram or WhatsApp, without an account."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AbstractAsyncContextManager

from threadline.cli.chat.keyboard import Keyboard, Lines
from threadline.cli.connection import settings_of
from threadline.cli.simulation.conversation import Conversation
from threadline.cli.simulation.stage import STAND_INS, Stage, own_service, running_service
from threadline.core.errors import InvalidInput


async def simulate(args: argparse.Namespace) -> None:
    names = list(dict.fromkeys(args.platform)) or list(STAND_INS)
    if unknown := [name for name in names if name not in STAND_INS]:
        raise InvalidInput(f"there is no stand-in for {unknown[0]!r}: there are {_listed(list(STAND_INS))}")
    keyboard = Keyboard(None, [":link", ":repeat", ":as", ":quit"]) if sys.stdin.isatty() else Lines()
    async with _stage(args, names) as stage:
        where = f"a service at {stage.url}" if args.url else "a service of their own"
        print(f"Simulating {_listed(names)} with {where}. :help says what can be done.", flush=True)
        await Conversation(stage, keyboard).run()


def _stage(args: argparse.Namespace, names: list[str]) -> AbstractAsyncContextManager[Stage]:
    settings = settings_of(args)
    if args.url is None:
        return own_service(names, settings, kept=args.database is not None)
    return running_service(names, args.url, settings.tenant, os.environ.get("THREADLINE_TOKEN"), args.port)


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last

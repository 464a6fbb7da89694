"""`threadline vault …`: keys that encrypt stored secrets, and their rotation."""

from __future__ import annotations

import argparse

from threadline.cli.connection import open_threadline
from threadline.cli.output import pluralize, report
from threadline.vault import new_key


async def make_key(args: argparse.Namespace) -> None:
    key = new_key()
    report(args, {"key": key}, key)


async def rotate(args: argparse.Namespace) -> None:
    async with open_threadline(args) as threadline:
        credentials = await threadline.messaging.credentials.rotate()
        agents = await threadline.agent_secrets.rotate()
    encrypted, unreadable = credentials.add(agents)
    sentence = (
        f"Encrypted with the current key: {pluralize(credentials.encrypted, 'set')} of credentials, "
        f"settings of {pluralize(agents.encrypted, 'agent')}"
    )
    if unreadable:
        sentence += f"; {unreadable} cannot be decrypted with any key: set them again"
    report(args, {"encrypted": encrypted, "unreadable": unreadable}, sentence)

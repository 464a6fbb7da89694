"""`threadline channels simulate`: type as a user of Slack, Telegram or WhatsApp and read what the bot replies.

A line that begins with a colon controls the simulation; every other line is sent to the bot.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import AbstractAsyncContextManager

from threadline.channels.slack_text import unescape
from threadline.cli.chat.completions import Completions
from threadline.cli.chat.keyboard import Keyboard, LineInput, PipedInput
from threadline.cli.connection import load_settings
from threadline.cli.printable import printable
from threadline.cli.simulation.service import FAKE_PLATFORMS, Simulation, connect_to_service, start_service
from threadline.core.errors import InvalidInput
from threadline.testing.platforms import FakePlatform, Reply
from threadline.testing.platforms.loopback import Told

HELP = """\
:slack :telegram :whatsapp  switch to this platform
:as NAME                    send as another person
:link                       create a code and send it as !link CODE
:repeat                     deliver the last message again, as platforms do
:quit                       quit
Everything else is sent to the bot; !help lists its commands."""
_COMMANDS = (":link", ":repeat", ":as", ":help", ":quit")
_NO_REPLY = frozenset(("duplicate", "replay_blocked", "blank"))
# A model may take minutes; an agent that fails is reported sooner than this.
_REPLY_SECONDS = 120.0
# A long reply arrives as several messages in quick succession.
_NEXT_REPLY_SECONDS = 0.3
# The hint for an unlinked sender is rate limited, so often nothing arrives.
_HINT_SECONDS = 1.0


async def simulate(args: argparse.Namespace) -> None:
    names = list(dict.fromkeys(args.platform)) or list(FAKE_PLATFORMS)
    if unknown := [name for name in names if name not in FAKE_PLATFORMS]:
        raise InvalidInput(f"unknown platform {unknown[0]!r}: choose from {', '.join(FAKE_PLATFORMS)}")
    keyboard: LineInput = Keyboard(None, _completions()) if sys.stdin.isatty() else PipedInput()
    async with _open_simulation(args, names) as simulation:
        where = f"the service at {simulation.url}" if args.url else "a temporary service"
        if args.url is None and args.database is not None:
            where = f"a service on {args.database}"
        print(f"Simulating {_join(names)} with {where}. Type :help for help.", flush=True)
        await Conversation(simulation, keyboard).run()


def _completions() -> Completions:
    return Completions(((command, "") for command in _COMMANDS), prefix=":")


def _open_simulation(args: argparse.Namespace, names: list[str]) -> AbstractAsyncContextManager[Simulation]:
    settings = load_settings(args)
    if args.url is None:
        return start_service(names, settings, is_temporary=args.database is None)
    return connect_to_service(names, args.url, settings.tenant, os.environ.get("THREADLINE_TOKEN"), args.port)


def _join(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


class Conversation:
    def __init__(self, simulation: Simulation, keyboard: LineInput) -> None:
        self._simulation = simulation
        self._keyboard = keyboard
        self._platform = next(iter(simulation.platforms.values()))
        self._person = "ada"
        self._last: bytes | None = None

    async def run(self) -> None:
        while True:
            prompt = f"{self._person} on {self._platform.platform}> "
            try:
                line = (await self._keyboard.read_line(prompt)).strip()
            except (EOFError, KeyboardInterrupt):
                return
            if not sys.stdin.isatty():
                print(printable(f"{prompt}{line}"))
            if line == ":quit":
                return
            if line:
                await self._handle(line)

    async def _handle(self, line: str) -> None:
        word, _, argument = line.partition(" ")
        if not word.startswith(":"):
            await self._send(line)
        elif word == ":link":
            await self._link()
        elif word == ":repeat":
            await self._repeat()
        elif word == ":as" and argument.strip():
            self._person = argument.strip()
        elif word[1:] in self._simulation.platforms:
            self._platform = self._simulation.platforms[word[1:]]
        else:
            print(HELP)

    async def _link(self) -> None:
        line = f"!link {await self._simulation.link_code()}"
        print(f"{self._person} on {self._platform.platform}> {line}")
        await self._send(line)

    async def _send(self, text: str) -> None:
        self._last = self._platform.write(text, self._platform.account(self._person))
        await self._deliver(self._last)

    async def _repeat(self) -> None:
        if self._last is None:
            print("Nothing to repeat yet.")
        else:
            await self._deliver(self._last)

    async def _deliver(self, body: bytes) -> None:
        seen = len(self._platform.sent)
        response = await self._platform.deliver(body)
        decision = _decision(response)
        if decision is None or decision in _NO_REPLY:
            print(f"  ({decision or f'HTTP {response.status}'}: no reply)")
            return
        seconds = _HINT_SECONDS if decision == "denied_unverified" else _REPLY_SECONDS
        for reply in await _collect_replies(self._platform, seen, seconds):
            print(_indent(_plain_text(self._platform, reply)))


async def _collect_replies(platform: FakePlatform, seen: int, seconds: float) -> list[Reply]:
    """The replies after the first `seen`, until none arrives for a moment."""
    found: list[Reply] = []
    try:
        while True:
            found = (await platform.replies(seen + len(found) + 1, seconds))[seen:]
            seconds = _NEXT_REPLY_SECONDS
    except TimeoutError:
        return found


def _decision(response: Told) -> str | None:
    try:
        return str(json.loads(response.body)["results"][-1]["decision"])
    except (ValueError, LookupError, TypeError):
        return None


def _plain_text(platform: FakePlatform, reply: Reply) -> str:
    return unescape(reply.text, (), any_mention=False) if platform.platform == "slack" else reply.text


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in printable(text, multiline=True).splitlines())

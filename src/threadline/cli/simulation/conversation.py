"""A person at the keyboard, as somebody on a platform: what they type is delivered, what the bot says is shown.

Lines that begin with a colon steer the simulation; everything else is sent as it is.
"""

from __future__ import annotations

import json
import sys
from typing import Protocol

from threadline.channels.slack_text import unescape
from threadline.cli.printable import shown
from threadline.cli.simulation.stage import Stage
from threadline.testing.platforms import FakePlatform, Reply
from threadline.testing.platforms.loopback import Told

HELP = """\
:slack :telegram :whatsapp  go on there
:as NAME                    be somebody else
:link                       make a code and send it as !link CODE
:repeat                     deliver the last message again, as platforms do
:quit                       end
Everything else is sent; !help lists what the bot understands."""
_SILENT = frozenset(("duplicate", "replay_blocked", "blank"))
_REPLY_SECONDS = 120.0
_MORE_SECONDS = 0.3
_HINT_SECONDS = 1.0


class Reading(Protocol):
    async def line(self, prompt: str) -> str: ...


class Conversation:
    def __init__(self, stage: Stage, keyboard: Reading) -> None:
        self._stage = stage
        self._keyboard = keyboard
        self._platform = next(iter(stage.platforms.values()))
        self._person = "ada"
        self._last: bytes | None = None

    async def run(self) -> None:
        while True:
            prompt = f"{self._person} on {self._platform.platform}> "
            try:
                line = (await self._keyboard.line(prompt)).strip()
            except (EOFError, KeyboardInterrupt):
                return
            if not sys.stdin.isatty():
                print(shown(f"{prompt}{line}"))
            if line == ":quit":
                return
            if line:
                await self._obey(line)

    async def _obey(self, line: str) -> None:
        word, _, argument = line.partition(" ")
        if not word.startswith(":"):
            await self._say(line)
        elif word == ":link":
            await self._link()
        elif word == ":repeat":
            await self._repeat()
        elif word == ":as" and argument.strip():
            self._person = argument.strip()
        elif word[1:] in self._stage.platforms:
            self._platform = self._stage.platforms[word[1:]]
        else:
            print(HELP)

    async def _link(self) -> None:
        line = f"!link {await self._stage.link_code()}"
        print(f"{self._person} on {self._platform.platform}> {line}")
        await self._say(line)

    async def _say(self, text: str) -> None:
        self._last = self._platform.write(text, self._platform.account(self._person))
        await self._deliver(self._last)

    async def _repeat(self) -> None:
        if self._last is None:
            print("There is nothing to repeat yet.")
        else:
            await self._deliver(self._last)

    async def _deliver(self, body: bytes) -> None:
        seen = len(self._platform.sent)
        told = await self._platform.deliver(body)
        decision = _decision(told)
        if decision is None or decision in _SILENT:
            print(f"  ({decision or f'answered {told.status}'}: no reply)")
            return
        # A stranger is told how to link once in a while, and otherwise nothing.
        first = _HINT_SECONDS if decision == "denied_unverified" else _REPLY_SECONDS
        for reply in await _arriving(self._platform, seen, first):
            print(_indented(_words(self._platform, reply)))


async def _arriving(platform: FakePlatform, seen: int, seconds: float) -> list[Reply]:
    """What comes after so many replies, until there is a pause."""
    found: list[Reply] = []
    try:
        while True:
            found = (await platform.replies(seen + len(found) + 1, seconds))[seen:]
            seconds = _MORE_SECONDS
    except TimeoutError:
        return found


def _decision(told: Told) -> str | None:
    try:
        return str(json.loads(told.body)["results"][-1]["decision"])
    except (ValueError, LookupError, TypeError):
        return None


def _words(platform: FakePlatform, reply: Reply) -> str:
    return unescape(reply.text, (), any_mention=False) if platform.platform == "slack" else reply.text


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in shown(text, multiline=True).splitlines())

"""What the scripted models of all frameworks say, and the tools that their agents have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias


class Say(NamedTuple):
    text: str


class Think(NamedTuple):
    text: str


class Call(NamedTuple):
    name: str
    given: dict[str, Any]
    id: str = "c1"


class Fail(NamedTuple):
    error: Exception


class Hang(NamedTuple):
    """The model does not answer."""


Item: TypeAlias = Say | Think | Call | Fail | Hang
INPUT_TOKENS, OUTPUT_TOKENS = 10, 3
"""Of each round, where the framework does not count for itself."""


class Script:
    """`seen` is what the model was given in each round, as text."""

    def __init__(self, *rounds: Sequence[Item], folder: Path | None = None) -> None:
        self.rounds = [list(items) for items in rounds]
        self.seen: list[str] = []
        self.ran: list[str] = []
        self.running = asyncio.Event()
        self.stopped = asyncio.Event()
        self._folder = folder

    async def next_round(self, given: Any) -> list[Item]:
        self.seen.append(repr(given))
        items = self.rounds.pop(0)
        for item in items:
            if isinstance(item, Fail):
                raise item.error
            if isinstance(item, Hang):
                await self.hang()
        return items

    async def hang(self) -> None:
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()

    # The tools.

    def population(self, city: str) -> int:
        """How many people live in a city."""
        self.ran.append(f"population {city}")
        return 232_000

    def stamp(self, text: str) -> str:
        """Stamps a text. Needs approval."""
        self.ran.append(f"stamp {text}")
        return f"{text} [stamped]"

    async def wait(self) -> str:
        """Waits for ever."""
        self.ran.append("wait")
        if self._folder is not None:
            with (self._folder / "ran").open("a") as file:
                file.write("wait\n")
        await self.hang()
        return "done"


def words(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")]

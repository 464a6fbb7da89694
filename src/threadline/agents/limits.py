"""How far one answer may go: rounds, time, tools at once, size. And the clock that counts its time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec


class Limits(msgspec.Struct, frozen=True):
    rounds: int = 25
    seconds: float = 600.0
    parallel: int = 8
    """Tools that run at the same time; more calls wait their turn."""
    reply_bytes: int = 900_000
    """Text, inputs and outputs together; below what one message may hold, so that every reply can be stored."""


class Allowance:
    """The seconds an answer has left. They stand still while a person is being asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds
        self._since: float | None = _now()
        self._asked = 0

    @property
    def left(self) -> float:
        return self._left if self._since is None else self._left - (_now() - self._since)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        self._left, self._since, self._asked = self.left, None, self._asked + 1
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked:
                self._since = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()

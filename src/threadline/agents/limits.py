"""How far one answer may go: rounds, time, tools at once, size; and the clock that counts its time.

The time is the model's and the tools'. While a person is being asked, it stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from threadline.core.errors import AgentFailed

T = TypeVar("T")


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

    async def next_of(self, stream: AsyncGenerator[T, None]) -> T | None:
        """What the stream gives next, or None at its end. AgentFailed if the time is over first."""
        # A stream that never waits never meets the timeout.
        if self.left <= 0:
            raise self._too_long()
        limit = asyncio.timeout(self.left)
        try:
            async with limit:
                return await anext(stream, None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._too_long() from None

    def _too_long(self) -> AgentFailed:
        return AgentFailed(f"The answer took longer than {self.seconds:g} s and was stopped.")

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

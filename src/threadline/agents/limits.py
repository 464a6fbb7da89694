"""How far one answer may go: rounds, time, tools at once, size; and the clock that counts its time.

The time is the model's and the tools'. While a person is being asked, it stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import msgspec

from threadline.core.errors import AgentFailed

T = TypeVar("T")
_TICK = 0.05


class Limits(msgspec.Struct, frozen=True):
    rounds: int = 25
    seconds: float = 600.0
    parallel: int = 8
    """Tools that run at the same time; more calls wait their turn."""
    reply_bytes: int = 900_000
    """Text, inputs and outputs together; below what one message may hold, so that every reply can be stored."""


class Allowance:
    """The seconds an answer has left. They stand still while a person is being asked. To be entered: one timer serves
    the whole answer, because one for each event costs more than the event."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._left = seconds
        self._since: float | None = self._loop.time()
        self._asked = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._stopped_reader = False

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self.left, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def left(self) -> float:
        return self._left if self._since is None else self._left - (self._loop.time() - self._since)

    async def next_of(self, stream: AsyncGenerator[T, None]) -> T | None:
        """What the stream gives next, or None at its end. AgentFailed if the time is over first."""
        # A stream that never waits never meets the timer.
        if self.left <= 0:
            raise self._too_long()
        task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        self._reader = task
        try:
            said = await anext(stream, None)
        except BaseException as exc:
            if self._let_go(task, cancelling) and isinstance(exc, asyncio.CancelledError):
                raise self._too_long() from None
            raise
        if self._let_go(task, cancelling):
            # The stream swallowed the cancellation; the time is over all the same.
            raise self._too_long()
        return said

    def _let_go(self, task: asyncio.Task[Any], cancelling: int) -> bool:
        """Takes our own cancellation back, if there was one. Whether it was the only one: another's goes first."""
        self._reader = None
        return self._stopped_reader and task.uncancel() <= cancelling

    def _look(self) -> None:
        if self.left > 0:
            # It stood still for a while.
            self._timer = self._loop.call_later(max(self.left, _TICK), self._look)
        elif self._reader is not None:
            self._stopped_reader = True
            self._reader.cancel()

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
                self._since = self._loop.time()

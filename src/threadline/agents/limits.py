"""Limits of one run of an agent (rounds, time, parallel tools, size), and the time budget that enforces the time.

The budget covers the model and its tools. It is paused while a person is asked for approval.
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
"""Shortest timer: a remainder of microseconds would reschedule it in a busy loop."""


class RunLimits(msgspec.Struct, frozen=True):
    rounds: int = 25
    seconds: float = 600.0
    parallel: int = 8
    """Tools that run at the same time; further calls wait."""
    reply_bytes: int = 900_000
    """Text, inputs and outputs together. Less than a message may have, so that every reply can be stored."""


class TimeBudget:
    """The seconds a run has left, paused while a person is asked. A context manager: one timer serves the whole run,
    because a timer per event would cost more than the event."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._remaining = seconds
        self._running_since: float | None = self._loop.time()
        self._pauses = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._has_cancelled_reader = False

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self.remaining, self._check)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def remaining(self) -> float:
        if self._running_since is None:
            return self._remaining
        return self._remaining - (self._loop.time() - self._running_since)

    async def next_from(self, stream: AsyncGenerator[T, None]) -> T | None:
        """The next item of the stream, None at its end. AgentFailed once the budget is used up."""
        # A stream that never awaits never lets the timer run, so the time is checked here too.
        if self.remaining <= 0:
            raise self._timed_out()
        task = asyncio.current_task()
        assert task is not None
        cancelling = task.cancelling()
        self._reader = task
        try:
            item = await anext(stream, None)
        except BaseException as exc:
            if self._take_back_cancellation(task, cancelling) and isinstance(exc, asyncio.CancelledError):
                raise self._timed_out() from None
            raise
        if self._take_back_cancellation(task, cancelling):
            # The stream swallowed the cancellation, but the budget is used up.
            raise self._timed_out()
        return item

    def _take_back_cancellation(self, task: asyncio.Task[Any], cancelling: int) -> bool:
        """Undoes the timer's cancellation, if there was one. True if it was the only one: a cancellation from
        outside must stay in effect."""
        self._reader = None
        return self._has_cancelled_reader and task.uncancel() <= cancelling

    def _check(self) -> None:
        if self.remaining > 0:
            # The budget was paused since the timer was set.
            self._timer = self._loop.call_later(max(self.remaining, _TICK), self._check)
        elif self._reader is not None:
            self._has_cancelled_reader = True
            self._reader.cancel()

    def _timed_out(self) -> AgentFailed:
        return AgentFailed(f"the reply took longer than {self.seconds:g} s and was stopped")

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._remaining, self._running_since, self._pauses = self.remaining, None, self._pauses + 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._running_since = self._loop.time()

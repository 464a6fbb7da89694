"""What the writer is asked to do, and how those who asked are told.

Answers go to each event loop at once, however many of its tasks were waiting: waking a loop costs more than an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple


class Note(Enum):
    """What else may come the writer's way."""

    STOP = "stop"
    WAKE = "wake"
    LOG_MOVED = "log moved"


class Job(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    may_fail_late: bool
    """Whether it can raise after it has written something."""


class Outcome(NamedTuple):
    value: Any
    error: BaseException | None


class JobResult(NamedTuple):
    future: asyncio.Future[Any]
    outcome: Outcome


def tell(answers: Iterable[JobResult]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[JobResult]] = {}
    for answer in answers:
        by_loop.setdefault(answer.future.get_loop(), []).append(answer)
    for loop, mine in by_loop.items():
        with suppress(RuntimeError):
            # The loop was closed over its tasks: nobody waits any more.
            loop.call_soon_threadsafe(_settle, mine)


def _settle(answers: list[JobResult]) -> None:
    for future, (value, error) in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

"""Replaces the sources of time and randomness while a simulation runs, so that a seed decides everything.

Product code takes its wall clock from a `Clock`, and the rest from the standard library. The functions of `time`, `os`
and `random` are therefore replaced for the whole Python process: code that is added later is deterministic without
knowing of the simulation. A simulated process sees its own wall clock.
"""

from __future__ import annotations

import datetime as dt
import gc
import logging
import os
import random
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, TypeAlias

from tests.simulation.event_loop import OWNER, SimulatedLoop
from threadline.core import ids

Replacement: TypeAlias = tuple[Any, str, Any]
"""A module or class, the name of one of its attributes, and the value to use instead."""

START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
"""The wall clock when a simulation begins."""


class _HasClock(Protocol):
    clock_offset: float


class WallClock:
    """The wall clock of one process: the loop's time, and how far this clock is off. Of the world if it has none."""

    def __init__(self, loop: SimulatedLoop, process: _HasClock | None = None) -> None:
        self._loop = loop
        self._process = process

    def now(self) -> dt.datetime:
        offset = 0.0 if self._process is None else self._process.clock_offset
        return START + dt.timedelta(seconds=self._loop.time() + offset)


@contextmanager
def simulated_machine(loop: SimulatedLoop, seed: int, more: Sequence[Replacement] = ()) -> Iterator[None]:
    """Nothing inside depends on the machine that runs it. Collecting garbage is left until the end: when the collector
    runs, and closes what was forgotten, depends on what the Python process did before."""
    generator = random.Random(f"machine {seed}")

    def wall_seconds() -> float:
        return START.timestamp() + loop.time() + float(getattr(OWNER.get(), "clock_offset", 0.0))

    replaced: list[Replacement] = [
        (time, "monotonic", loop.time),
        (time, "perf_counter", loop.time),
        (time, "time", wall_seconds),
        (time, "time_ns", lambda: int(wall_seconds() * 1e6) * 1000),
        (time, "sleep", _refuse_sleep),
        (os, "urandom", generator.randbytes),
        (random, "_urandom", generator.randbytes),
        (threading.Thread, "start", _refuse_thread),
        # A crashed process runs no finalizer, and Python would keep what the finalizer refers to for ever.
        (weakref, "finalize", lambda *_: None),
    ]
    state = random.getstate()
    random.seed(seed)
    gc.disable()
    with ExitStack() as stack:
        stack.callback(gc.enable)
        stack.callback(random.setstate, state)
        # Ids grow within a Python process: each simulation begins with none.
        stack.enter_context(_replaced(ids, "_last", 0))
        for owner, name, value in (*replaced, *_imported(replaced), *more):
            stack.enter_context(_replaced(owner, name, value))
        yield


def _imported(replaced: Sequence[Replacement]) -> list[Replacement]:
    """The same for modules that imported such a function by its name."""
    values = {id(getattr(owner, name)): value for owner, name, value in replaced}
    modules = [module for name, module in sys.modules.items() if name.startswith("threadline.")]
    return [
        (module, name, values[id(found)])
        for module in modules
        for name, found in vars(module).items()
        if id(found) in values
    ]


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _refuse_sleep(seconds: float) -> None:
    raise AssertionError("a simulated process must not block: no other code could run")


def _refuse_thread(thread: threading.Thread) -> None:
    raise AssertionError(
        f"a simulated process must not start thread {thread.name!r}: its order would not be the seed's"
    )


class _TraceHandler(logging.Handler):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._note(f"log: {record.getMessage()} {'' if error is None else repr(error)}")


@contextmanager
def logs_in_trace(note: Callable[[str], None]) -> Iterator[None]:
    """Warnings of the product become lines of the trace."""
    logger, handler = logging.getLogger("threadline"), _TraceHandler(note)
    with _replaced(logger, "propagate", False):
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


@contextmanager
def quiet_end() -> Iterator[None]:
    """For freeing what crashed processes left. Python closes suspended coroutines then, and their `finally` blocks
    complain that there is no event loop."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(action="ignore"), _replaced(sys, "unraisablehook", lambda _: None):
        try:
            yield
            gc.collect()
        finally:
            logging.disable(disabled)

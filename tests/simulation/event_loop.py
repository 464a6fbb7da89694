"""An event loop without threads, sockets or real time, whose order is chosen by a random number generator.

Several simulated processes share the loop. A callback belongs to the process in whose context it was scheduled. Within
a process callbacks run in the order in which they were scheduled, as asyncio guarantees; which process runs next is
chosen at random. The clock moves with every callback by a few microseconds, and to the next timer when nothing is
ready. What a thread would do runs on the loop after a random delay.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import sys
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CALLBACK_SECONDS = 20e-6
"""What a callback costs. Above zero, so that a task that never waits still lets time pass for the others."""
_LONGEST_JOB_SECONDS = 0.004
"""Upper bound of the delay of a job that would run in a thread."""


class Owner(Protocol):
    """A simulated process, as the loop sees it."""

    name: str
    is_alive: bool
    paused_until: float


OWNER: ContextVar[Owner | None] = ContextVar("OWNER", default=None)
"""The simulated process that the running code belongs to; None for the world around the processes."""


class NothingToRun(Exception):
    """Nothing is scheduled, and the simulation has not ended: something waits for ever."""


class _Callback(asyncio.TimerHandle):
    def __init__(
        self, when: float, callback: Callable[..., object], args: Any, loop: SimulatedLoop, context: Context | None
    ) -> None:
        context = copy_context() if context is None else context
        super().__init__(when, callback, args, loop, context)
        self.owner = context.get(OWNER)

    def run(self) -> None:
        self._run()


class _Future(asyncio.Future[T]):
    """Hashed by a number that counts, and not by its address: the order of a set must be the same in every run."""

    def __init__(self, number: int, loop: SimulatedLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[T]):
    """Hashed like `_Future`."""

    def __init__(self, number: int, coro: Any, *, context: Context, **options: Any) -> None:
        # First: asyncio puts the task into a set when it is constructed.
        self._number = number
        self.owner = context.get(OWNER)
        super().__init__(coro, context=context, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    """`before_callback` is called before each callback of a process, and may end or pause the process. `after_crash` is
    called when a process has ended inside a callback."""

    def __init__(
        self, chance: random.Random, before_callback: Callable[[Owner], None], after_crash: Callable[[Owner], None]
    ) -> None:
        self.chance = chance
        self.steps = 0
        self.failures: list[str] = []
        """What asyncio reports to a loop's exception handler, of processes that still run."""
        self._now = 0.0
        self._before_callback = before_callback
        self._after_crash = after_crash
        self._kept: list[object] = []
        """Callbacks of processes that are gone. Freeing a suspended coroutine would run its `finally` blocks."""
        self._numbers = count(1)
        self._ready: dict[Owner | None, deque[_Callback]] = {}
        self._timers: list[tuple[float, int, _Callback]] = []
        self._is_running = False

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Lets time pass inside a callback: the process is blocked, by a disk for example."""
        self._now += seconds

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        made = _Callback(self._now, callback, args, self, context)
        self._enqueue(made)
        return made

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        made = _Callback(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), made))
        return made

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio. A cancelled timer stays in the heap until its time."""

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._numbers), self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        context = copy_context() if context is None else context
        return _Task(next(self._numbers), coro, loop=self, name=name, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs the function on the loop, after the time that a thread might need to begin."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as exc:  # noqa: BLE001 - every error belongs to the caller
                future.set_exception(exc)

        self.call_later(self.job_seconds(), run)
        return future

    def job_seconds(self) -> float:
        """How long a job waits for its thread."""
        return self.chance.random() * _LONGEST_JOB_SECONDS

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs until `main` has ended. NothingToRun if it waits for ever."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        _set_running_loop(self)
        self._is_running = True
        try:
            task = self.create_task(main, name="simulation")
            while not task.done():
                self._step()
            return task.result()
        finally:
            self._is_running = False
            _set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def drop(self, owner: Owner) -> None:
        """Forgets everything that a process scheduled: it has ended without another instruction."""
        self._kept.append(self._ready.pop(owner, None))

    def _enqueue(self, callback: _Callback) -> None:
        if callback.owner is None or callback.owner.is_alive:
            self._ready.setdefault(callback.owner, deque()).append(callback)
        else:
            self._kept.append(callback)

    def _step(self) -> None:
        self._enqueue_due()
        runnable = [owner for owner in self._ready if owner is None or owner.paused_until <= self._now]
        if not runnable:
            self._skip_to_next()
            return
        owner = runnable[0] if len(runnable) == 1 else self.chance.choice(runnable)
        if owner is not None:
            self._before_callback(owner)
            if not owner.is_alive or owner.paused_until > self._now:
                return
        waiting = self._ready[owner]
        callback = waiting.popleft()
        if not waiting:
            del self._ready[owner]
        if not callback.cancelled():
            self.steps += 1
            self._now += _CALLBACK_SECONDS
            callback.run()
            if owner is not None and not owner.is_alive:
                self._after_crash(owner)

    def _enqueue_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._now:
            _, _, callback = heapq.heappop(self._timers)
            if not callback.cancelled():
                self._enqueue(callback)

    def _skip_to_next(self) -> None:
        moments = [owner.paused_until for owner in self._ready if owner is not None]
        moments += [self._timers[0][0]] if self._timers else []
        if not moments:
            raise NothingToRun
        self._now = max(self._now, min(moments))

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        owner = OWNER.get()
        if self._is_running and (owner is None or owner.is_alive):
            self.create_task(generator.aclose())

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        reported = context.get("task") or context.get("future") or context.get("handle")
        owner = reported.owner if isinstance(reported, _Task | _Callback) else None
        if "exception" in context and (owner is None or owner.is_alive):
            self.failures.append(f"{context['message']}: {context['exception']!r}")

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

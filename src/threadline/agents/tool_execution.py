"""Calling a stranger's function so that it always comes back: with a value, or with `ToolFailed`.

Coroutines run as tasks, plain functions in threads of their own. Whatever they raise becomes text, and past its time
neither is waited for: a task is cancelled, a thread, which cannot be, is left behind as a daemon that delays nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from threadline.agents.outputs import ToolFailed
from threadline.core.sanitize import sanitize_text

GRACE_SECONDS = 1.0
"""How long a cancelled task may take to clean up before it is left alone."""

_ERROR_CHARACTERS = 2_000


class _Returned(NamedTuple):
    value: Any


class _Raised(NamedTuple):
    text: str


async def run_bounded(call: Callable[[], Any], seconds: float) -> Any:
    """What the call returns (awaited, if that is what it wants) within so many seconds."""
    work: asyncio.Future[_Returned | _Raised]
    if _is_async(call):
        work = asyncio.ensure_future(_await(call))
        late = f"took longer than {seconds:.3g} s and was stopped"
    else:
        work = _start_thread(call)
        late = f"did not return within {seconds:.3g} s; it may still be running"
    in_time = False
    try:
        await asyncio.wait({work}, timeout=seconds)
        in_time = work.done()
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=GRACE_SECONDS)
    if not in_time:
        raise ToolFailed(late)
    if work.cancelled():
        raise ToolFailed("was cancelled from inside")
    match work.result():
        case _Returned(value):
            return value
        case _Raised(text):
            raise ToolFailed(text)


def _is_async(call: Callable[[], Any]) -> bool:
    inner = call.func if isinstance(call, partial) else call
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


async def _await(call: Callable[[], Awaitable[Any]]) -> _Returned | _Raised:
    try:
        return _Returned(await call())
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - even sys.exit in a tool ends the tool, not the process
        return _Raised(describe(exc))


def _start_thread(call: Callable[[], Any]) -> asyncio.Future[_Returned | _Raised]:
    # Not the loop's executor: a tool that never returns would hold one of its few threads, and the exit, for ever.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Returned | _Raised] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: _Returned | _Raised) -> None:
        if not done.done():
            done.set_result(outcome)

    def body() -> None:
        outcome: _Returned | _Raised
        try:
            outcome = _Returned(context.run(call))
        except BaseException as exc:  # noqa: BLE001 - the same, and a thread has nobody else to tell
            outcome = _Raised(describe(exc))
        # The loop may be gone by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=body, name="threadline-tool", daemon=True).start()
    return done


def describe(exc: BaseException) -> str:
    """One short text of an error, for a model or a person: never a traceback."""
    try:
        words = sanitize_text(str(exc)).strip()
    except Exception:  # noqa: BLE001 - a stranger's __str__
        words = ""
    name = type(exc).__name__
    return f"{name}: {words}"[:_ERROR_CHARACTERS] if words else name

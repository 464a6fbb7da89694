"""Running a tool's function within limits. `run_bounded` always returns: with a value, or with ToolFailed.

Coroutines run as tasks, plain functions in a thread each. An exception becomes text. After its timeout a task is
cancelled; a thread cannot be, so it is abandoned as a daemon that does not delay exit. `to_json_data` turns a return
value into plain JSON of a bounded size.
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

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, InvalidText
from threadline.core.sanitize import sanitize_json, sanitize_text

GRACE_SECONDS = 1.0
"""How long a cancelled task may take to clean up before it is abandoned. The user is waiting for the reply."""

_ERROR_CHARACTERS = 2_000


class ToolFailed(Exception):
    """A tool gave no result. The text is for the model, which may try something else."""


class _Returned(NamedTuple):
    value: Any


class _Raised(NamedTuple):
    text: str


async def run_bounded(call: Callable[[], Any], seconds: float) -> Any:
    """The value that the call returns, awaited if it is async, within this many seconds."""
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
            # Bounded: a task may catch its cancellation and never end.
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
    except ToolFailed as exc:
        return _Raised(str(exc))
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - even sys.exit in a tool ends the tool, not the process
        return _Raised(describe_error(exc))


def _start_thread(call: Callable[[], Any]) -> asyncio.Future[_Returned | _Raised]:
    # Not the loop's executor: a tool that never returns would occupy one of its few threads and block exit.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Returned | _Raised] = loop.create_future()
    context = contextvars.copy_context()

    def resolve(outcome: _Returned | _Raised) -> None:
        if not done.done():
            done.set_result(outcome)

    def body() -> None:
        outcome: _Returned | _Raised
        try:
            outcome = _Returned(context.run(call))
        except ToolFailed as exc:
            outcome = _Raised(str(exc))
        except BaseException as exc:  # noqa: BLE001 - sys.exit included; an exception in a thread would be lost
            outcome = _Raised(describe_error(exc))
        # The loop may have been closed since.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(resolve, outcome)

    threading.Thread(target=body, name="threadline-tool", daemon=True).start()
    return done


def describe_error(exc: BaseException) -> str:
    """Name and message of an exception on one line, for a model or a person. Never a traceback."""
    try:
        message = sanitize_text(str(exc)).strip()
    except Exception:  # noqa: BLE001 - the tool's own __str__ may raise anything
        message = ""
    name = type(exc).__name__
    return f"{name}: {message}"[:_ERROR_CHARACTERS] if message else name


def to_json_data(value: Any, limit: int) -> Any:
    """What a tool returned, as plain JSON data of at most about `limit` bytes. Longer text and data are cut, and the
    result says so; invalid characters are replaced. ToolFailed for a value that is not JSON."""
    if isinstance(value, str):
        return _cut_text(value, limit)
    try:
        data = msgspec.to_builtins(value, str_keys=True)
        raw = _dump(data)
    except RecursionError:
        raise ToolFailed("the tool ran, but its result is nested too deeply for JSON") from None
    except (TypeError, ValueError, OverflowError, InvalidInput) as exc:
        raise ToolFailed(f"the tool ran, but its {type(value).__name__} is not JSON data: {exc}") from exc
    if len(raw) > limit:
        return _mark_cut(raw[:limit].decode(errors="ignore"), len(raw), "bytes of JSON")
    # Parsed again, so that the model, the journal and the store get the same value.
    return jsontext.parse(raw, "tool output")


def _dump(data: Any) -> bytes:
    try:
        return jsontext.dump(data, "tool output")
    except InvalidText:
        return sanitize_json(data, "tool output").json


def _cut_text(value: str, limit: int) -> str:
    # A character takes at most four bytes, so a shorter text cannot exceed the limit. Only the head is encoded.
    if len(value) * 4 <= limit:
        return sanitize_text(value)
    head = sanitize_text(value[:limit]).encode()[:limit].decode(errors="ignore")
    return head if len(head) == len(value) else _mark_cut(head, len(value), "characters")


def _mark_cut(head: str, size: int, unit: str) -> str:
    return f"{head}\n[cut: this is the beginning of {size:,} {unit}]"

"""Text on standard input beside a question: `git diff | threadline chat -p "review this"`.

Reading is bounded in size and in time: text that no message can hold is refused before it is read to its end, and a
pipe that stays open and silent is explained after a few seconds and given up after ten minutes.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import stat
import sys
from collections.abc import Callable

from threadline.core.errors import InvalidInput, LimitExceeded

# The largest message that any setting allows is far smaller; this bounds the memory of `yes | threadline chat -p`.
MOST_BYTES = 16 * 1024 * 1024
_BLOCK = 65_536
# A program that starts this one with an open pipe and never writes to it: its user is told what is awaited.
_EXPLAIN_SECONDS = 3.0
# A build or a test run that is piped in may be silent for minutes before it prints anything.
_SILENCE_SECONDS = 600.0
# How often the reading thread looks whether it is still wanted: a blocked read cannot be cancelled.
_POLL_SECONDS = 0.2
_WAITING = "waiting for the text on standard input; end it, or start the command with < /dev/null to ask without one"


def is_piped() -> bool:
    """Whether standard input is a pipe or a file, not a terminal and not closed."""
    if sys.stdin is None or sys.stdin.closed:
        return False
    return not sys.stdin.isatty()


async def read_piped_text(explain: Callable[[str], None]) -> str:
    """All of standard input as text. InvalidInput if it is not text, or if nothing arrives for ten minutes."""
    raw = await _read(explain)
    if b"\x00" in raw:
        raise InvalidInput("standard input must be text, got binary data (a NUL byte)")
    try:
        return raw.decode("utf-8-sig").rstrip("\n")
    except UnicodeDecodeError as exc:
        fault = f"byte 0x{raw[exc.start]:02x} at offset {exc.start}"
        raise InvalidInput(f"standard input must be UTF-8 text, got {fault}: convert it first") from exc


async def _read(explain: Callable[[str], None]) -> bytes:
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):  # not a file, in a program that calls `main` itself
        return _check_size(sys.stdin.buffer.read(MOST_BYTES + 1))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return _check_size(sys.stdin.buffer.read(MOST_BYTES + 1))
    blocks: list[bytes] = []
    size, silent = 0, 0.0
    while True:
        block = await asyncio.to_thread(_read_block, descriptor)
        if block is None:
            silent += _POLL_SECONDS
            if silent >= _SILENCE_SECONDS:
                raise InvalidInput(f"nothing arrived on standard input for {_SILENCE_SECONDS:g} s: end it, or use -p")
            if not blocks and silent - _POLL_SECONDS < _EXPLAIN_SECONDS <= silent:
                explain(_WAITING)
            continue
        silent = 0.0
        if not block:
            return b"".join(blocks)
        blocks.append(block)
        size += len(block)
        if size > MOST_BYTES:
            _check_size(b"".join(blocks))


def _read_block(descriptor: int) -> bytes | None:
    """The next bytes, empty at the end; None if nothing arrived in time."""
    ready, _, _ = select.select([descriptor], [], [], _POLL_SECONDS)
    return os.read(descriptor, _BLOCK) if ready else None


def _check_size(raw: bytes) -> bytes:
    if len(raw) > MOST_BYTES:
        raise LimitExceeded("text on standard input in bytes", MOST_BYTES, len(raw))
    return raw


def join_question(question: str, piped: str) -> str:
    """One message: the question first, because it becomes the title, then the text."""
    return "\n\n".join(text for text in (question.strip("\n"), piped) if text.strip())

"""Lines that are typed while a reply is printed: each is handed over when Enter is pressed.

The terminal itself edits the line, without printing it. A line that was begun stays in it for the next prompt. Lines
that follow one another at once, as a paste does, are one text.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator

_MOST_BYTES = 65_536
# A paste arrives in one piece, or in pieces a few milliseconds apart; a person needs longer for the next line.
_PASTE_SECONDS = 0.1


class TypedLines:
    """`descriptor` is the terminal, which is read only between `listen` and its end."""

    def __init__(self, descriptor: int, take: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._held = b""
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        self._resume()
        try:
            yield
        finally:
            self._pause()
            self._hand_over()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While the line editor reads the terminal."""
        self._pause()
        try:
            yield
        finally:
            self._resume()

    def _resume(self) -> None:
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def _pause(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)

    def _read(self) -> None:
        try:
            # In the terminal's line mode, one whole line.
            read = os.read(self._descriptor, _MOST_BYTES)
        except OSError:
            read = b""
        if not read:
            # Ctrl-D, or the terminal was closed: otherwise this would be called for ever.
            self._pause()
            return
        self._held += read
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_PASTE_SECONDS, self._hand_over)

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, b""
        text = held.decode("utf-8", "replace").strip()
        if text:
            self._take(text)

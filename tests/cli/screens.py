"""A command in a pseudo-terminal whose bytes a terminal emulator draws: what a person sees, line by line.

Tests wait for what is on the screen. A golden screen is compared until it is there, so that no moment has to be hit.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pexpect
import pyte
from pyte.screens import Char

GOLDEN = Path(__file__).parent / "golden" / "screens"
ROWS = 36
_PATIENCE = 90.0
_POLL_SECONDS = 0.1
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_BLANK = Char(" ")


class _Answering(pyte.Screen):
    """Answers the questions that a program asks its terminal, such as where the cursor is."""

    answer: Callable[[str], object] = staticmethod(str)

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class ScreenTerminal:
    def __init__(self, home: Path, columns: int, *, colours: bool) -> None:
        self._home = home
        self._size = (ROWS, columns)
        self._child: pexpect.spawn[bytes] | None = None
        self._screen = _Answering(columns, ROWS)
        self.received = b""
        """Everything that was printed since the last start."""
        self.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            # A stub model answers what a test asks, and nothing else.
            "THREADLINE_TITLES__BY_MODEL": "false",
            **({} if colours else {"NO_COLOR": "1"}),
        }

    def start(self, *words: str) -> None:
        self._screen = _Answering(self._size[1], ROWS)
        self.received = b""
        self._stream = pyte.ByteStream(self._screen)
        command = ["-m", "threadline", *words]
        self._child = child = pexpect.spawn(
            sys.executable, command, cwd=self._home, env=self.environment, dimensions=self._size
        )
        self._screen.answer = child.send

    def type(self, keys: str) -> None:
        assert self._child is not None
        self._child.send(keys)

    def paste(self, text: str) -> None:
        self.type(f"\x1b[200~{text}\x1b[201~")

    def press_until(self, key: str, text: str) -> None:
        """Again and again: the history is loaded while a line is typed, and a key pressed before that does nothing."""

        def is_shown() -> bool:
            return text in self._text()

        for _ in range(int(_PATIENCE)):
            self.type(key)
            if self._wait(is_shown, 1.0):
                return
        raise AssertionError(f"not on the screen: {text}\n" + "\n".join(self.lines()))

    def wait_for(self, *texts: str) -> None:
        """Until the screen shows all these texts; line ends and the indent of wrapped lines do not count."""

        def is_shown() -> bool:
            return all(text in self._text() for text in texts)

        if not self._wait(is_shown):
            raise AssertionError(f"not on the screen: {texts}\n" + "\n".join(self.lines()))

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Until something outside of the screen is so. Reads what is printed in that time."""
        assert self._wait(is_done), "\n".join(self.lines())

    def wait_for_prompt(self) -> None:
        """Until a line can be typed: the status line stands below the prompt only then."""
        assert self._wait(self._is_at_prompt), "\n".join(self.lines())

    def _is_at_prompt(self) -> bool:
        line, below = self.lines()[self._screen.cursor.y], self.lines()[self._screen.cursor.y + 1 :]
        return line == ">" and any(below)

    def wait_for_exit(self, code: int) -> None:
        assert self._child is not None
        assert self._wait(lambda: self._child is None or not self._child.isalive())
        self._read()
        self._child.close()
        assert self._child.exitstatus == code

    def expect_golden(self, name: str) -> None:
        """Waits for the golden screen. `THREADLINE_GOLDEN=1` writes it as it is now: look at the difference before you
        commit it."""
        file = GOLDEN / f"{name}.txt"
        if os.environ.get("THREADLINE_GOLDEN"):
            self._settle()
            file.write_text(self.drawn(), encoding="utf-8")
        wanted = file.read_text(encoding="utf-8")
        if not self._wait(lambda: self.drawn() == wanted):
            difference = unified_diff(wanted.splitlines(), self.drawn().splitlines(), name, "screen", lineterm="")
            raise AssertionError("\n".join(difference))

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def _text(self) -> str:
        return " ".join(" ".join(self.lines()).split())

    def drawn(self) -> str:
        """The screen as text, with `⟨…⟩` where the style changes, and times masked."""
        rows = [self._drawn_row(row).rstrip() for row in range(ROWS)]
        return _TIME.sub("0000-00-00 00:00", "\n".join(rows).rstrip()) + "\n"

    def _drawn_row(self, row: int) -> str:
        out, style = "", ""
        cells = self._screen.buffer[row]
        for column in range(self._screen.columns):
            cell = cells[column]
            if (now := "" if cell.data == " " and not cell.reverse else _style(cell)) != style and cell.data != " ":
                out, style = f"{out}⟨{now}⟩", now
            out += cell.data
        return out.rstrip() + ("⟨⟩" if style else "")

    def _settle(self) -> None:
        """Only to write golden files: half a second without output."""
        before = None
        while before != (before := self.drawn()):
            time.sleep(0.5)
            self._read()

    def _wait(self, is_done: Callable[[], bool], seconds: float = _PATIENCE) -> bool:
        ends = time.monotonic() + seconds
        while not is_done():
            if time.monotonic() > ends:
                return False
            self._read()
        return True

    def _read(self) -> None:
        assert self._child is not None
        try:
            printed = self._child.read_nonblocking(65_536, timeout=_POLL_SECONDS)
            self.received += printed
            self._stream.feed(printed)
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            # Nothing more arrives; the caller waits for what is on the screen.
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        if self._child is not None:
            self._child.close(force=True)


def _style(cell: Char) -> str:
    names = [name for name in ("bold", "italics", "underscore", "strikethrough", "reverse") if getattr(cell, name)]
    return " ".join([*names, *([cell.fg] if cell.fg != "default" else [])])

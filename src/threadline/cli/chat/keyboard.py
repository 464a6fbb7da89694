"""Input of a chat: a line editor with history on a terminal, plain lines from a pipe.

Alt-Enter, or a backslash at the end of a line, continues the text on the next line; pasted text keeps its lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any, Protocol

from threadline.core.errors import ExtraMissing


class LineInput(Protocol):
    @property
    def is_terminal(self) -> bool: ...

    async def read_line(self, prompt: str) -> str:
        """The next line, without its newline. EOFError at the end (Ctrl-D), KeyboardInterrupt at Ctrl-C."""
        ...

    async def read_answer(self, prompt: str) -> str:
        """The answer to a question of the program; not added to the history."""
        ...


class Keyboard:
    """Reads from a terminal with prompt_toolkit."""

    is_terminal = True

    def __init__(self, history: Path | None, words: list[str]) -> None:
        try:
            from prompt_toolkit import PromptSession  # noqa: PLC0415 - an extra, and slow to import
            from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise ExtraMissing("chat", "the line editor of threadline chat") from exc
        self._session: Any = PromptSession(
            history=_open_history(history),
            completer=WordCompleter(words, sentence=True),
            complete_while_typing=False,
            key_bindings=_key_bindings(),
        )

    async def read_line(self, prompt: str) -> str:
        text = await self._read(prompt)
        while text.endswith("\\"):
            text = text[:-1] + "\n" + await self._read("… ")
        return text

    async def _read(self, prompt: str) -> str:
        text: str = await self._session.prompt_async(prompt)
        return text

    async def read_answer(self, prompt: str) -> str:
        from prompt_toolkit import PromptSession  # noqa: PLC0415

        answer: str = await PromptSession().prompt_async(prompt)
        return answer


class PipedInput:
    """Reads standard input where that is not a terminal. Prints no prompts."""

    is_terminal = False

    async def read_line(self, prompt: str) -> str:
        # In a thread: a pipe that has no line yet must not block the event loop.
        line: str = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise EOFError
        return line.rstrip("\n")

    async def read_answer(self, prompt: str) -> str:
        return await self.read_line(prompt)


def _open_history(path: Path | None) -> Any:
    """The lines typed earlier. A file that cannot be read or written, as on a full disk, is done without: the line
    editor would print a traceback for every line."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory  # noqa: PLC0415

    if path is None:
        return InMemoryHistory()

    class History(FileHistory):
        def load_history_strings(self) -> list[str]:
            try:
                return list(super().load_history_strings())
            except OSError:
                return []

        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError):
                super().store_string(string)

    return History(str(path))


def _key_bindings() -> Any:
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415

    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return bindings

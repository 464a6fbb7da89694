"""What the person types: a line editor with history where there is a terminal, plain lines where there is none.

Alt-Enter, or a backslash at the end of a line, goes on on the next line; a pasted text keeps its lines.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from threadline.core.errors import ExtraMissing


class Keyboard:
    """Reads from a terminal with prompt_toolkit."""

    def __init__(self, history: Path | None, words: list[str]) -> None:
        try:
            from prompt_toolkit import PromptSession  # noqa: PLC0415 - an extra, and slow to import
            from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415
            from prompt_toolkit.history import FileHistory, InMemoryHistory  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise ExtraMissing("chat", "the line editor of threadline chat") from exc
        kept = InMemoryHistory() if history is None else FileHistory(str(history))
        completer = WordCompleter(words, sentence=True)
        self._session: Any = PromptSession(
            history=kept, completer=completer, complete_while_typing=False, key_bindings=_bindings()
        )

    async def line(self, prompt: str) -> str:
        """What was typed, without the final newline. EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
        text = await self._read(prompt)
        while text.endswith("\\"):
            text = text[:-1] + "\n" + await self._read("… ")
        return text

    async def _read(self, prompt: str) -> str:
        text: str = await self._session.prompt_async(prompt)
        return text

    async def key(self, prompt: str) -> str:
        """A short answer that is not kept in the history."""
        from prompt_toolkit import PromptSession  # noqa: PLC0415

        answer: str = await PromptSession().prompt_async(prompt)
        return answer


class Lines:
    """Reads lines of standard input where nobody sits at it."""

    async def line(self, prompt: str) -> str:
        return await self.key(prompt)

    async def key(self, prompt: str) -> str:
        read: str = await asyncio.to_thread(sys.stdin.readline)
        if not read:
            raise EOFError
        return read.rstrip("\n")


def _bindings() -> Any:
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415

    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return bindings

"""Input of a chat: a line editor with history on a terminal, plain lines from a pipe.

Alt-Enter, or Enter after a backslash, continues the text on the next line; the whole message is one entry of the
history. Long pasted texts are shown as a mark and sent whole. Between lines the terminal does not echo what is typed,
so that neither `^C` nor the next question is printed into a reply; a line that is sent with Enter is handed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from threadline.cli.chat.pasted_text import PastedTexts
from threadline.cli.chat.typed_lines import TypedLines
from threadline.core.errors import ExtraMissing

if TYPE_CHECKING:
    from threadline.cli.chat.completions import Completions

# Longer entries are kept until the chat ends: the file is read at every start.
_LONGEST_ENTRY = 20_000


class LineInput(Protocol):
    @property
    def is_terminal(self) -> bool: ...

    async def read_line(self, prompt: str) -> str:
        """The next line, without its newline. EOFError at the end (Ctrl-D), KeyboardInterrupt at Ctrl-C."""
        ...

    async def read_answer(self, prompt: str) -> str:
        """The answer to a question of the program; not added to the history. On a terminal what was typed before the
        question was asked does not answer it."""
        ...

    def take_lines(self, take: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """While entered, as a reply is printed: what is typed is not printed, and each line that is sent goes to
        `take`."""
        ...


class Keyboard:
    """Reads from a terminal with prompt_toolkit. `status` is printed below the line while it is typed."""

    is_terminal = True

    def __init__(
        self,
        history: Path | None,
        completions: Completions,
        status: Callable[[int], str] | None = None,
    ) -> None:
        try:
            from prompt_toolkit import PromptSession  # noqa: PLC0415 - an extra, and slow to import
            from prompt_toolkit.styles import Style  # noqa: PLC0415
        except ModuleNotFoundError as exc:
            raise ExtraMissing("chat", "the line editor of threadline chat") from exc
        self._pasted = PastedTexts()
        self._typed: TypedLines | None = None
        self._session: Any = PromptSession(
            history=_open_history(history, self._pasted),
            completer=_completer(completions),
            complete_while_typing=False,
            key_bindings=_key_bindings(self._pasted),
            multiline=True,
            prompt_continuation="… ",
            bottom_toolbar=None if status is None else _toolbar(status),
            style=Style([("bottom-toolbar", "noreverse ansibrightblack")]),
        )

    async def read_line(self, prompt: str) -> str:
        text: str = await self._session.prompt_async(prompt)
        return self._pasted.unfold(text)

    async def read_answer(self, prompt: str) -> str:
        from prompt_toolkit import PromptSession  # noqa: PLC0415

        asking: Any = PromptSession()
        with self._typed.paused() if self._typed is not None else contextlib.nullcontext():
            _discard_typed(asking.app.input)
            answer: str = await asking.prompt_async(prompt)
        return answer

    @contextlib.contextmanager
    def take_lines(self, take: Callable[[str], None]) -> Iterator[None]:
        def remember(text: str) -> None:
            self._session.history.append_string(text)
            take(text)

        with _without_echo():
            self._typed = TypedLines(sys.stdin.fileno(), remember)
            try:
                with self._typed.listen():
                    yield
            finally:
                self._typed = None


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

    def take_lines(self, take: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@contextlib.contextmanager
def _without_echo() -> Iterator[None]:
    """While entered, the terminal does not print what is typed."""
    import termios  # noqa: PLC0415 - only a terminal needs it

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _discard_typed(terminal: Any) -> None:
    """Drops the keys that wait to be read, in the terminal and in the line editor: a line that was typed ahead must not
    approve a call that its writer has not seen."""
    import termios  # noqa: PLC0415 - only a terminal needs it

    from prompt_toolkit.input.typeahead import clear_typeahead  # noqa: PLC0415

    clear_typeahead(terminal)
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _open_history(path: Path | None, pasted: PastedTexts) -> Any:
    """The lines typed earlier. A file that cannot be read or written, as on a full disk, is done without: the line
    editor would print a traceback for every line. The file has pasted texts whole."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory  # noqa: PLC0415

    if path is None:
        return InMemoryHistory()

    class History(FileHistory):
        def load_history_strings(self) -> list[str]:
            try:
                return [pasted.fold(entry) for entry in super().load_history_strings()]
            except OSError:
                return []

        def store_string(self, string: str) -> None:
            entry = pasted.unfold(string)
            if len(entry) <= _LONGEST_ENTRY:
                with contextlib.suppress(OSError):
                    super().store_string(entry)

    return History(str(path))


def _completer(completions: Completions) -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion  # noqa: PLC0415
    from prompt_toolkit.document import Document  # noqa: PLC0415

    class ChatCompleter(Completer):
        def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
            return iter(())

        async def get_completions_async(
            self, document: Document, event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            for found in await completions.find(document.text_before_cursor):
                yield Completion(found.text, -found.replaces, display=found.text, display_meta=found.about)

    return ChatCompleter()


def _toolbar(status: Callable[[int], str]) -> Callable[[], str]:
    from prompt_toolkit.application import get_app  # noqa: PLC0415

    # The last column stays empty: some terminals wrap a line that fills it.
    return lambda: status(get_app().output.get_size().columns - 1)


def _key_bindings(pasted: PastedTexts) -> Any:
    from prompt_toolkit.enums import DEFAULT_BUFFER  # noqa: PLC0415
    from prompt_toolkit.filters import Condition, has_focus  # noqa: PLC0415
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415
    from prompt_toolkit.keys import Keys  # noqa: PLC0415

    bindings = KeyBindings()
    # The same keys have their own meaning while the history is searched.
    is_typing = has_focus(DEFAULT_BUFFER)

    @bindings.add("enter", filter=is_typing)
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter", filter=is_typing)
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add(Keys.BracketedPaste, filter=is_typing)
    def _(event: Any) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(pasted.fold(text))

    @Condition
    def is_behind_mark() -> bool:
        from prompt_toolkit.application import get_app  # noqa: PLC0415

        return pasted.mark_before(get_app().current_buffer.document.text_before_cursor) > 0

    @bindings.add("backspace", filter=is_typing & is_behind_mark)
    def _(event: Any) -> None:
        # A mark that has lost a character would be sent as it is, without its text.
        buffer = event.current_buffer
        buffer.delete_before_cursor(pasted.mark_before(buffer.document.text_before_cursor))

    return bindings

"""A list of threads to choose from in the terminal: typing searches, the arrow keys move, Enter opens.

The search is over title, folder and id; every word must be contained. `rows_of` is what is drawn, as plain text, so
that it can be tested without a terminal. Needs prompt_toolkit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from threadline.cli.output import cut, display_width, format_time
from threadline.cli.printable import printable, short_folder
from threadline.core.threads import Thread

_ROWS = 12
_HELP = "Type to search, ↑↓ to move, Enter to open, Esc for a new chat"
# An arrow key is a sequence that begins with Escape: after this without the rest, it was Escape itself.
_ESCAPE_SECONDS = 0.05


class Choice(NamedTuple):
    """The state of the list: the words typed, and the position of the cursor among the threads that match."""

    words: str = ""
    position: int = 0


def matching(threads: list[Thread], words: str) -> list[Thread]:
    wanted = words.casefold().split()
    return [thread for thread in threads if all(word in _searched(thread) for word in wanted)]


def _searched(thread: Thread) -> str:
    return f"{thread.title or ''} {short_folder(thread.working_dir)} {thread.id}".casefold()


def rows_of(threads: list[Thread], choice: Choice, width: int, folder: str | None) -> list[tuple[str, str]]:
    """Lines with their styles, at most `width` cells wide: the search, the threads around the cursor, the keys."""
    found = matching(threads, choice.words)
    first = max(0, min(choice.position - _ROWS // 2, len(found) - _ROWS))
    shown = found[first : first + _ROWS]
    rows = [("class:search", cut(f"Resume: {choice.words}▏", width))]
    for index, thread in enumerate(shown, start=first):
        style = "class:chosen" if index == choice.position else ""
        rows.append((style, _row(thread, width, folder, is_chosen=index == choice.position)))
    if not found:
        rows.append(("class:help", cut("  nothing found", width)))
    counted = f"{len(found)} of {len(threads)}. " if len(threads) > _ROWS or choice.words else ""
    rows.append(("class:help", cut(f"{counted}{_HELP}", width)))
    return rows


def _row(thread: Thread, width: int, folder: str | None, *, is_chosen: bool) -> str:
    mark = "→ " if is_chosen else "  "
    title = printable(thread.title or "(untitled)")
    if width < 60:
        return cut(f"{mark}{title}", width)
    where = "here" if thread.working_dir == folder and folder else short_folder(thread.working_dir)
    told = f"{format_time(thread.updated_at)}  {thread.message_count:>4}"
    room = max(width - len(mark) - len(told) - 4, 10)
    place = min(max(room // 3, 8), 40)
    where = where if len(where) <= place else f"…{where[1 - place :]}"
    title_room = room - place
    title = cut(title, title_room)
    return cut(f"{mark}{title}{' ' * (title_room - display_width(title))}  {printable(where):<{place}}  {told}", width)


async def pick_thread(threads: list[Thread], folder: str | None, *, colours: bool) -> str | None:
    """The id of the chosen thread; None for a new chat (Esc, Ctrl-C or Ctrl-D)."""
    from prompt_toolkit.application import Application  # noqa: PLC0415 - an extra, and slow to import
    from prompt_toolkit.formatted_text import FormattedText  # noqa: PLC0415
    from prompt_toolkit.layout import Layout, Window  # noqa: PLC0415
    from prompt_toolkit.layout.controls import FormattedTextControl  # noqa: PLC0415
    from prompt_toolkit.styles import Style  # noqa: PLC0415

    picker = _Picker(threads)

    def draw() -> FormattedText:
        width = application.output.get_size().columns - 1
        rows = rows_of(threads, picker.choice, width, folder)
        return FormattedText([piece for style, text in rows for piece in ((style, text), ("", "\n"))][:-1])

    plain = Style([("chosen", "reverse")])
    style = Style([("search", "bold"), ("chosen", "bold ansicyan"), ("help", "ansibrightblack")])
    control = FormattedTextControl(draw, focusable=True, show_cursor=False)
    application: Application[str | None] = Application(
        layout=Layout(Window(control, dont_extend_height=True)),
        key_bindings=_key_bindings(picker),
        style=style if colours else plain,
        erase_when_done=True,
    )
    application.ttimeoutlen = _ESCAPE_SECONDS
    return await application.run_async()


class _Picker:
    def __init__(self, threads: list[Thread]) -> None:
        self._threads = threads
        self.choice = Choice()

    def type(self, text: str) -> None:
        self.choice = Choice(self.choice.words + printable(text))

    def erase(self) -> None:
        self.choice = Choice(self.choice.words[:-1])

    def clear(self) -> None:
        self.choice = Choice()

    def move(self, steps: int) -> None:
        last = len(matching(self._threads, self.choice.words)) - 1
        self.choice = self.choice._replace(position=max(0, min(self.choice.position + steps, last)))

    @property
    def chosen(self) -> Thread | None:
        found = matching(self._threads, self.choice.words)
        return found[self.choice.position] if self.choice.position < len(found) else None


def _key_bindings(picker: _Picker) -> Any:
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415
    from prompt_toolkit.keys import Keys  # noqa: PLC0415

    bindings = KeyBindings()
    for key, steps in (("up", -1), ("c-p", -1), ("down", 1), ("c-n", 1), ("pageup", -_ROWS), ("pagedown", _ROWS)):
        bindings.add(key)(lambda event, steps=steps: picker.move(steps))
    bindings.add("backspace")(lambda event: picker.erase())
    bindings.add("c-u")(lambda event: picker.clear())
    bindings.add(Keys.BracketedPaste)(lambda event: picker.type(" ".join(event.data.split())))
    bindings.add(Keys.Any)(lambda event: picker.type(event.data))
    for key in ("escape", "c-c", "c-d"):
        bindings.add(key)(lambda event: event.app.exit(result=None))

    @bindings.add("enter")
    def _(event: Any) -> None:
        if (chosen := picker.chosen) is not None:
            event.app.exit(result=chosen.id)

    return bindings

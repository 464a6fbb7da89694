"""In-chat commands: one grammar and one help text for every messaging surface.

A command is one line that begins with `!` and a letter. Which there are, what they take and what help says of them is
declared once, below. Reading a text does nothing: it says what the text is, and surfaces act on it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

CommandName: TypeAlias = Literal[
    "new",
    "branch",
    "save",
    "load",
    "context",
    "chats",
    "open",
    "rename",
    "archive",
    "clear",
    "undo",
    "link",
    "unlink",
    "yes",
    "no",
    "cancel",
    "help",
    "whoami",
]


class CommandSpec(NamedTuple):
    """`argument` is spelled as help shows it: `[name]` may be left out, `<name>` may not, none is none."""

    name: CommandName
    argument: str
    help: str
    hidden: bool = False

    @property
    def usage(self) -> str:
        return f"!{self.name} {self.argument}".rstrip()


COMMANDS: tuple[CommandSpec, ...] = (
    CommandSpec("new", "[name]", "start a new chat"),
    CommandSpec("branch", "[name]", "start a new chat that begins as this one"),
    CommandSpec("save", "[name]", "give this point of the chat a name"),
    CommandSpec("load", "[name]", "go on from a saved point; without a name, choose from a list"),
    CommandSpec("context", "", "show which chat this is and how much is in it"),
    CommandSpec("chats", "", "list your chats"),
    CommandSpec("open", "<chat>", "go on with one of your chats here"),
    CommandSpec("rename", "<name>", "give this chat another name"),
    CommandSpec("archive", "", "take this chat off the list; its history is kept"),
    CommandSpec("clear", "", "start afresh here; the old history is kept"),
    CommandSpec("undo", "", "take back your last message and its answer"),
    CommandSpec("link", "<code>", "link this account with the code you were given"),
    CommandSpec("unlink", "", "end the link between this account and you"),
    CommandSpec("yes", "", "confirm what was asked"),
    CommandSpec("no", "", "decline what was asked"),
    CommandSpec("cancel", "", "leave a list without choosing"),
    CommandSpec("help", "", "show this list"),
    # For whoever helps a user with linking; nobody needs it to talk.
    CommandSpec("whoami", "", "show who you are here", hidden=True),
)

_BY_NAME: dict[str, CommandSpec] = {spec.name: spec for spec in COMMANDS}
# Some clients put a no-break space after a word.
_COMMAND = re.compile(r"!([^\W\d_][\w-]{0,30})(?:[^\S\n]+(\S.*))?")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


class Command(NamedTuple):
    name: CommandName
    argument: str | None = None


class Misused(NamedTuple):
    """A known command with an argument too few or too many; `hint` is for the user."""

    name: CommandName
    hint: str


class Unknown(NamedTuple):
    """It looks like a command and is none; `hint` is for the user."""

    word: str
    hint: str


def parse(text: str) -> Command | Misused | Unknown | None:
    """What a text asks for; None if it is ordinary text."""
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return None
    word, argument = found[1].lower(), found[2]
    spec = _BY_NAME.get(word)
    if spec is None:
        return Unknown(word, _hint(word))
    if argument is None and spec.argument.startswith("<"):
        return Misused(spec.name, f"!{spec.name} needs {spec.argument}: {spec.help}.")
    if argument is not None and not spec.argument:
        return Misused(spec.name, f"!{spec.name} stands alone: {spec.help}.")
    return Command(spec.name, argument)


def _hint(word: str) -> str:
    public = [spec.name for spec in COMMANDS if not spec.hidden]
    close = difflib.get_close_matches(word, public, n=1)
    meant = f" Did you mean !{close[0]}?" if close else ""
    return f"There is no command !{word}.{meant} !help lists them all."


def help_text() -> str:
    return "\n".join(f"{spec.usage}: {spec.help}" for spec in COMMANDS if not spec.hidden)


def choices_text(names: Sequence[str]) -> str:
    """The list that a `!load` without a name answers with."""
    lines = [f"{number}. {name}" for number, name in enumerate(names, 1)]
    return "\n".join(["Choose by number, or 0 to leave:", *lines])


def chosen(text: str, choices: int) -> int | None:
    """What a text says to such a list: a number from 1 on, 0 to leave (`!cancel` says the same), or None: it is
    ordinary text, or a command of its own."""
    if parse(text) == Command("cancel"):
        return 0
    line = text.strip()
    number = int(line) if _NUMBER.fullmatch(line) else None
    return number if number is not None and number <= choices else None

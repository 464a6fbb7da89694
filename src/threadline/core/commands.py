"""In-chat commands: one table for every messaging platform and the terminal.

A command is one row of `COMMANDS`: name, argument, help text, the role it needs and where it can be used. Grammar, help
and hints are read from the table; `messaging.command_executor` has the handlers. In a chat a command is one line that
begins with `!` and a letter; the terminal uses the same rows with `/`. Parsing has no side effects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from threadline.core.threads import UserRole

CommandName: TypeAlias = Literal[
    "new",
    "branch",
    "save",
    "load",
    "context",
    "chats",
    "open",
    "home",
    "rename",
    "archive",
    "unarchive",
    "space",
    "share",
    "clear",
    "undo",
    "link",
    "unlink",
    "yes",
    "no",
    "cancel",
    "stop",
    "help",
    "whoami",
    "model",
    "agent",
    "usage",
    "edit",
    "compact",
    "summary",
    "export",
    "quit",
]
CommandPlace: TypeAlias = Literal["private", "shared", "room", "shared_room", "terminal"]
"""Where a command is typed: a private chat, a chat that others read as well, the same two on a platform where the bot
opens rooms (Matrix), or the terminal."""

ROOMS: frozenset[CommandPlace] = frozenset(("room", "shared_room"))
SHARED: frozenset[CommandPlace] = frozenset(("shared", "shared_room"))
CHATS: frozenset[CommandPlace] = frozenset(("private", "shared", *ROOMS))
TERMINAL: frozenset[CommandPlace] = frozenset(("terminal",))
EVERYWHERE = CHATS | TERMINAL


class CommandSpec(NamedTuple):
    """One command. `argument` is spelled as help shows it: `[name]` is optional, `<name>` is required, "" means that
    the command takes none."""

    name: CommandName
    argument: str
    help: str
    where: frozenset[CommandPlace] = CHATS
    role: UserRole = "member"
    aliases: tuple[str, ...] = ()
    is_hidden: bool = False

    def usage(self, prefix: str = "!") -> str:
        return f"{prefix}{self.name} {self.argument}".rstrip()


COMMANDS: tuple[CommandSpec, ...] = (
    CommandSpec("new", "[name]", "start a new chat", EVERYWHERE),
    CommandSpec("branch", "[name]", "start a new chat that begins with this history", EVERYWHERE),
    CommandSpec("save", "[name]", "save this point under a name", EVERYWHERE),
    CommandSpec("load", "[name]", "continue from a saved point; without a name, choose from a list", EVERYWHERE),
    CommandSpec("context", "", "show the id, size and agent of this chat"),
    CommandSpec("context", "[text|clear]", "show, set or clear the text pinned for the agent", TERMINAL),
    CommandSpec("chats", "", "list your chats", EVERYWHERE, aliases=("threads",)),
    CommandSpec("open", "<chat>", "continue another chat here", EVERYWHERE),
    CommandSpec("home", "[here]", "show the chat that private chats continue; with here, make it this one", EVERYWHERE),
    CommandSpec("rename", "<name>", "rename this chat", EVERYWHERE),
    CommandSpec("archive", "", "remove this chat from the list and keep its history", EVERYWHERE),
    CommandSpec("unarchive", "", "put this chat into the list again", ROOMS),
    CommandSpec("space", "", "get an invitation to your space again", ROOMS),
    CommandSpec("share", "[off]", "one chat for everyone in this room, or end that", ROOMS),
    CommandSpec("clear", "", "start with an empty history here and keep the old one"),
    CommandSpec("undo", "", "remove your last message and its reply", EVERYWHERE),
    CommandSpec("link", "<code>", "link this account with a code"),
    CommandSpec("unlink", "", "unlink this account"),
    CommandSpec("yes", "", "confirm, or allow the tool that the agent asks for"),
    CommandSpec("no", "", "decline"),
    CommandSpec("cancel", "", "close a list without choosing"),
    CommandSpec("stop", "", "stop the running reply"),
    CommandSpec("model", "[name]", "show or change the model", EVERYWHERE),
    CommandSpec("agent", "[name]", "show or change the agent of this room", ROOMS),
    CommandSpec("agent", "[id]", "show the agents or ask another one from now on", TERMINAL),
    CommandSpec("usage", "", "show the tokens and the cost of this chat and of this month", TERMINAL),
    CommandSpec("edit", "[text]", "write your message in $EDITOR", TERMINAL),
    CommandSpec("compact", "", "summarise the older messages for the agent", TERMINAL),
    CommandSpec("summary", "[edit]", "show the summary of the older messages, or edit it", TERMINAL),
    CommandSpec("export", "[file]", "write this chat to a file (.md, .json, .jsonl)", TERMINAL),
    CommandSpec("help", "", "show this list", EVERYWHERE, role="viewer"),
    CommandSpec("quit", "", "quit", TERMINAL),
    # For support with linking; not needed in normal use.
    CommandSpec("whoami", "", "show your user and account", role="viewer", is_hidden=True),
)

# Some clients put a no-break space after a word.
_COMMAND = re.compile(r"([^\W\d_][\w-]{0,30})(?:[^\S\n]+(\S.*))?")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


class Command(NamedTuple):
    name: CommandName
    argument: str | None = None
    is_confirmed: bool = False
    """The user has answered `!yes` to the question that this command asks first."""


class Misused(NamedTuple):
    """A known command with a missing or unexpected argument; `hint` is for the user."""

    name: CommandName
    hint: str


class Unknown(NamedTuple):
    """Looks like a command but is not in the table; `hint` is for the user."""

    word: str
    hint: str


def parse(text: str, *, place: CommandPlace = "private", prefix: str = "!") -> Command | Misused | Unknown | None:
    """Reads a text as a command; None for ordinary text."""
    line = text.strip()
    found = _COMMAND.fullmatch(line, len(prefix)) if line.startswith(prefix) else None
    if found is None:
        return None
    word, argument = found[1].lower(), found[2]
    spec = find_spec(word, place)
    if spec is None:
        return Unknown(word, _hint(word, place, prefix))
    if argument is None and spec.argument.startswith("<"):
        return Misused(spec.name, f"{prefix}{spec.name} needs {spec.argument}: {spec.help}.")
    if argument is not None and not spec.argument:
        return Misused(spec.name, f"{prefix}{spec.name} takes no argument: {spec.help}.")
    return Command(spec.name, argument)


def find_spec(word: str, place: CommandPlace) -> CommandSpec | None:
    """The row for a name or alias that can be used at this place."""
    return next((spec for spec in specs_for(place) if word == spec.name or word in spec.aliases), None)


def specs_for(place: CommandPlace) -> Iterable[CommandSpec]:
    return (spec for spec in COMMANDS if place in spec.where)


def _hint(word: str, place: CommandPlace, prefix: str) -> str:
    import difflib  # noqa: PLC0415 - used only after a typing mistake

    public = [spec.name for spec in specs_for(place) if not spec.is_hidden]
    close = difflib.get_close_matches(word, public, n=1)
    meant = f" Did you mean {prefix}{close[0]}?" if close else ""
    return f"Unknown command {prefix}{word}.{meant} {prefix}help lists all commands."


def help_text(place: CommandPlace = "private", prefix: str = "!") -> str:
    """One line per public command: `usage: help`."""
    return "\n".join(f"{spec.usage(prefix)}: {spec.help}" for spec in specs_for(place) if not spec.is_hidden)


def choices_text(names: Sequence[str]) -> str:
    """A numbered list to choose from."""
    lines = [f"{number}. {name}" for number, name in enumerate(names, 1)]
    return "\n".join(["Reply with a number, or 0 to cancel:", *lines])


def read_choice(text: str, choices: int) -> int | None:
    """The number that a text picks from such a list, 0 to cancel (`!cancel` does the same). None if the text is no
    answer to the list: ordinary text, or another command."""
    if parse(text) == Command("cancel"):
        return 0
    line = text.strip()
    number = int(line) if _NUMBER.fullmatch(line) else None
    return number if number is not None and number <= choices else None

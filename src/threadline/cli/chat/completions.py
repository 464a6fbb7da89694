"""What Tab offers in a chat: commands and their arguments, prompts of MCP servers, and resources after `@`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from threadline.core.errors import ThreadlineError

_MENTION = re.compile(r"(?:^|\s)(@\S*)$")
_MOST = 200
"""Longer lists are searched by typing more."""


class Completion(NamedTuple):
    """A text for the last `replaces` characters before the cursor."""

    text: str
    replaces: int
    about: str = ""


ListWords = Callable[[], Awaitable[Sequence[str]]]


class Completions:
    """Sources are added as the chat opens. One that fails offers nothing: Tab is no place for an error."""

    def __init__(self, commands: Iterable[tuple[str, str]] = (), prefix: str = "/") -> None:
        self._prefix = prefix
        listed = tuple(commands)
        self._commands: list[Callable[[], Iterable[tuple[str, str]]]] = [lambda: listed]
        self._arguments: dict[str, ListWords] = {}
        self._words: Callable[[str], Sequence[str]] = lambda command: ()
        self._mentions: Callable[[], Iterable[tuple[str, str]]] = tuple

    def add_commands(
        self, commands: Callable[[], Iterable[tuple[str, str]]], arguments: Callable[[str], Sequence[str]]
    ) -> None:
        """Commands that are known only while the chat runs; `arguments` lists the names of a command's arguments."""
        self._commands.append(commands)
        self._words = arguments

    def add_arguments(self, command: str, words: ListWords) -> None:
        self._arguments[command] = words

    def add_mentions(self, mentions: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self._mentions = mentions

    async def find(self, before: str) -> list[Completion]:
        """For the text before the cursor."""
        if mention := _MENTION.search(before):
            return _matching(self._mentions(), mention[1])
        if not before.startswith(self._prefix) or "\n" in before:
            return []
        command, space, argument = before.partition(" ")
        if not space:
            return _matching((each for source in self._commands for each in source()), before)
        if (words := self._arguments.get(command)) is not None:
            try:
                return _matching(((word, "") for word in await words()), argument)
            except ThreadlineError:
                return []
        last = argument.rpartition(" ")[2]
        given = {word.partition("=")[0] for word in argument.split()}
        return _matching(((f"{name}=", "") for name in self._words(command) if name not in given or last), last)


def _matching(words: Iterable[tuple[str, str]], typed: str) -> list[Completion]:
    found = (Completion(word, len(typed), about) for word, about in words if word.startswith(typed))
    return [each for each, _ in zip(found, range(_MOST), strict=False)]

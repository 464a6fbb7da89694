"""Prompts of MCP servers as commands, `/SERVER__name …`, and their resources as context, `@SERVER:URI` in a message.

Only servers that are connected offer completions; a command or a mention waits for its server. What a server sends is
not trusted: it is sent as the user's message, and its control characters are shown as such.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from threadline.agents.mcp.catalogue import SEPARATOR, McpPrompt
from threadline.agents.mcp.servers import McpServers
from threadline.cli.output import pluralize
from threadline.cli.printable import printable
from threadline.core.errors import InvalidInput

_MENTION = re.compile(r"(?<!\S)@([A-Za-z0-9][A-Za-z0-9_-]*):(\S+)")
_COMMAND = re.compile(r"/([A-Za-z0-9_-]+)(?:\s+(.*))?", re.DOTALL)
_PUNCTUATION = ".,;:!?)"
_NOT_TEXT = "[content that is not text: the agent can read it with read_resource]"


class ServerPrompts:
    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def commands(self) -> list[tuple[str, str]]:
        """Of the servers that are connected now: the command, and what it does."""
        return [(f"/{each.full_name}", _first_line(each.description)) for each in self._servers.connected_prompts()]

    def arguments(self, command: str) -> Sequence[str]:
        found = next((each for each in self._servers.connected_prompts() if f"/{each.full_name}" == command), None)
        return () if found is None else [each.name for each in found.arguments]

    def mentions(self) -> list[tuple[str, str]]:
        listed = self._servers.connected_resources()
        return [(f"@{each.server}:{each.uri}", each.name) for each in listed if not each.is_template]

    def help_lines(self) -> Iterable[tuple[str, str]]:
        for each in self._servers.connected_prompts():
            arguments = "".join(f" <{a.name}>" if a.required else f" [{a.name}]" for a in each.arguments)
            yield f"/{each.full_name}{arguments}", _first_line(each.description)

    async def message_of(self, text: str) -> str | None:
        """The message that a command sends; None if the text is no such command. InvalidInput says which
        arguments the prompt takes, AgentFailed what is wrong with its server."""
        found = _COMMAND.fullmatch(text.strip())
        if found is None or found[1].partition(SEPARATOR)[0] not in self._servers.started_names:
            return None
        prompt = next((each for each in await self._servers.prompts() if each.full_name == found[1]), None)
        if prompt is None:
            raise self._unknown(found[1])
        return await self._servers.prompt(prompt.full_name, read_arguments(prompt, found[2] or ""))

    def _unknown(self, name: str) -> InvalidInput:
        server = name.partition(SEPARATOR)[0]
        if (reason := self._servers.failure(server)) is not None:
            return InvalidInput(f"MCP server {server} is not available: {reason}")
        offered = [each.full_name for each in self._servers.connected_prompts() if each.server == server]
        return InvalidInput(f"MCP server {server} has no prompt {name}: it has {', '.join(offered) or 'none'}")

    async def with_resources(self, text: str) -> tuple[str, list[str]]:
        """The message with the resources that it mentions below it, and their names. AgentFailed."""
        pieces, read = [text], []
        known = self._servers.started_names
        for server, uri in _MENTION.findall(text):
            if server not in known:
                continue
            # A mention at the end of a sentence: URIs rarely end with punctuation.
            uri = uri.rstrip(_PUNCTUATION)
            if (name := f"@{server}:{uri}") in read:
                continue
            pieces.append(f"{name}:\n\n{_text_of(await self._servers.read(server, uri))}")
            read.append(name)
        return "\n\n".join(pieces), read


def read_arguments(prompt: McpPrompt, line: str) -> dict[str, str]:
    """`name=value` for an argument by its name; other words are the arguments in order. A prompt with one argument
    takes the whole line."""
    names = [each.name for each in prompt.arguments]
    if len(names) == 1 and line and not line.startswith(f"{names[0]}="):
        return {names[0]: line}
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise InvalidInput(f"arguments of /{prompt.full_name} cannot be read: {exc}; quote as in a shell") from exc
    given: dict[str, str] = {}
    free: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            given[name] = value
        else:
            free.append(word)
    missing = [name for name in names if name not in given]
    if len(free) > len(missing):
        taken = " ".join(names) or "none"
        raise InvalidInput(
            f"/{prompt.full_name} takes {pluralize(len(names), 'argument')} ({taken}), got {len(words)}: "
            "quote values that contain spaces"
        )
    return {**given, **dict(zip(missing, free, strict=False))}


def _text_of(contents: Any) -> str:
    """Images are named only: they are not text."""
    if isinstance(contents, str):
        return contents
    texts: list[str] = []
    for block in contents if isinstance(contents, list) else [contents]:
        is_text = isinstance(block, dict) and isinstance(block.get("text"), str)
        texts.append(block["text"] if is_text else _NOT_TEXT)
    return "\n\n".join(texts)


def _first_line(text: str) -> str:
    return printable(text.strip().partition("\n")[0])[:100]

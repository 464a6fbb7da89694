"""Settings of one MCP server, `[mcp.NAME]`: how it is reached, and which of its tools agents may use.

Secrets are never written in the settings: a value of `env` or `headers` names an environment variable, or contains one
as `${NAME}`. Checks are pure; the values of the variables are read when the server is connected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from threadline.core.errors import SettingsInvalid, quote
from threadline.core.masking import SecretMasker

SERVER_NAME = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,31}", re.ASCII)
"""Without two underscores in a row: they separate the server from the tool in `NAME__tool`."""
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_LONGEST_LITERAL = 16
"""Of the text around `${NAME}` in a header: enough for `Bearer ` and too short for a key."""

_Seconds = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either `command`, a program that speaks MCP on its standard input and output, or `url`, a server with streamable
    HTTP. `allow`, `deny` and `approve` are patterns of the server's own names of its tools."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    timeout_seconds: _Seconds = 60.0
    connect_seconds: _Seconds = 30.0
    output_bytes: _Count = 50_000

    def allows(self, tool: str) -> bool:
        return _matches(tool, self.allow) and not _matches(tool, self.deny)

    def needs_approval(self, tool: str) -> bool:
        return _matches(tool, self.approve)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_server(name: str, server: McpServer) -> None:
    """SettingsInvalid, with the key, if the server cannot be used. Values that may be secrets are not repeated."""
    if not SERVER_NAME.fullmatch(name):
        raise SettingsInvalid(
            f"`mcp.{name}` must be named with 1–32 letters, digits, hyphens and single underscores, got {quote(name)}"
        )
    if bool(server.command) == bool(server.url):
        given = "both" if server.command else "neither"
        raise SettingsInvalid(f"`mcp.{name}` must have either `command` or `url`, got {given}")
    if server.headers and server.command:
        raise SettingsInvalid(f"`mcp.{name}.headers` can be used only with `url`")
    if server.env and server.url:
        raise SettingsInvalid(f"`mcp.{name}.env` can be used only with `command`")
    if server.url and not server.url.startswith(("http://", "https://")):
        raise SettingsInvalid(f"`mcp.{name}.url` must begin with http:// or https://")
    for word in (*server.command, _REFERENCE.sub("", server.url)):
        if SecretMasker().mask_text(word) != word:
            raise SettingsInvalid(
                f"`mcp.{name}` contains a secret: set it in the environment and name the variable in `env` or `headers`"
            )
    for section in ("env", "headers"):
        for key, value in getattr(server, section).items():
            _check_reference(f"`mcp.{name}.{section}.{key}`", value)


def _check_reference(where: str, value: str) -> None:
    if _VARIABLE.fullmatch(value) and SecretMasker().mask_text(value) == value:
        return
    literal = _REFERENCE.sub("", value)
    if literal == value or len(literal) > _LONGEST_LITERAL:
        raise SettingsInvalid(
            f"{where} must be the name of an environment variable, such as 'GITHUB_TOKEN', or contain it as "
            "'Bearer ${GITHUB_TOKEN}': secrets are set in the environment only"
        )


def resolve(where: str, value: str, environ: Mapping[str, str]) -> str:
    """The value with the variables that it names. SettingsInvalid if one is not set."""
    if _VARIABLE.fullmatch(value):
        value = f"${{{value}}}"

    def read(found: re.Match[str]) -> str:
        if not (known := environ.get(found[1])):
            raise SettingsInvalid(f"environment variable {found[1]}, which {where} names, is not set")
        return known

    return _REFERENCE.sub(read, value)

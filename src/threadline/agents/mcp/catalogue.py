"""What one MCP server offers, and its tools as tools of an agent.

A tool is named `SERVER__tool`, with the characters and the length that providers accept. Descriptions and schemas come
from the server and are not trusted: they are bounded, and control characters are made visible.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from threadline.agents.mcp.content import IMAGE_BYTES, plain
from threadline.agents.tools import Tool
from threadline.core import jsontext
from threadline.core.errors import InvalidInput
from threadline.core.mcp_servers import McpServer

SEPARATOR = "__"
_NAME_LENGTH = 64
_DESCRIPTION = 4_000
_SCHEMA_BYTES = 32_768
_OTHER_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}

CallTool = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Calls the server's tool of this name: output as JSON data, or ToolFailed."""


class ServerTool(NamedTuple):
    """A tool as its server lists it, with the name that models call it by."""

    full_name: str
    name: str
    description: str
    schema: dict[str, Any]
    is_repeatable: bool


class PromptArgument(NamedTuple):
    name: str
    description: str
    required: bool


class McpPrompt(NamedTuple):
    """A prompt of a server. `full_name` is what a person types, as `/SERVER__name`."""

    full_name: str
    server: str
    name: str
    description: str
    arguments: tuple[PromptArgument, ...]


class McpResource(NamedTuple):
    """A resource of a server, or with `is_template` a pattern of their URIs."""

    server: str
    uri: str
    name: str
    description: str
    media_type: str
    is_template: bool = False


class Catalogue(NamedTuple):
    """Everything that a server offers."""

    tools: tuple[ServerTool, ...] = ()
    prompts: tuple[McpPrompt, ...] = ()
    resources: tuple[McpResource, ...] = ()
    has_resources: bool = False


def full_name(server: str, name: str, taken: Iterable[str] = ()) -> str:
    """`SERVER__name` in the characters that providers accept. One that is too long or taken ends with a hash."""
    wanted = f"{server}{SEPARATOR}{_OTHER_CHARACTERS.sub('_', name)}"
    if len(wanted) <= _NAME_LENGTH and wanted not in taken:
        return wanted
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"{wanted[: _NAME_LENGTH - len(mark) - 1]}_{mark}"


def read_tools(server: str, listed: Iterable[Mapping[str, Any]]) -> tuple[ServerTool, ...]:
    """The tools of a server's list. Of two with one name, the first."""
    found: dict[str, ServerTool] = {}
    names: set[str] = set()
    for item in listed:
        name = item.get("name")
        if not isinstance(name, str) or not name or name in names:
            continue
        names.add(name)
        spelled = full_name(server, name, found)
        hints = item.get("annotations") or {}
        found[spelled] = ServerTool(
            spelled,
            name,
            plain(item.get("description") or item.get("title"), _DESCRIPTION),
            _schema(item.get("inputSchema")),
            bool(hints.get("readOnlyHint") or hints.get("idempotentHint")),
        )
    return tuple(found.values())


def _schema(given: Any) -> dict[str, Any]:
    """The schema, or one for any object if it is unusable: the server checks its input itself."""
    if not isinstance(given, dict) or given.get("type") != "object":
        return _OBJECT
    # OpenAI requires `properties`, and some servers reject a key that they do not know.
    schema = {"properties": {}, **{key: value for key, value in given.items() if key != "$schema"}}
    try:
        return schema if len(jsontext.dump(schema, "schema")) <= _SCHEMA_BYTES else _OBJECT
    except InvalidInput:
        return _OBJECT


def read_prompts(server: str, listed: Iterable[Mapping[str, Any]]) -> tuple[McpPrompt, ...]:
    found: dict[str, McpPrompt] = {}
    for item in listed:
        name = item.get("name")
        if isinstance(name, str) and name:
            spelled = full_name(server, name, found)
            arguments = tuple(
                PromptArgument(each["name"], plain(each.get("description"), _DESCRIPTION), bool(each.get("required")))
                for each in item.get("arguments") or ()
                if isinstance(each.get("name"), str)
            )
            about = plain(item.get("description") or item.get("title"), _DESCRIPTION)
            found[spelled] = McpPrompt(spelled, server, name, about, arguments)
    return tuple(found.values())


def read_resources(server: str, listed: Iterable[Mapping[str, Any]]) -> tuple[McpResource, ...]:
    return tuple(
        McpResource(
            server,
            uri,
            plain(item.get("name") or item.get("title"), 200),
            plain(item.get("description"), 1_000),
            plain(item.get("mimeType"), 100),
            "uriTemplate" in item,
        )
        for item in listed
        if isinstance(uri := item.get("uri") or item.get("uriTemplate"), str)
    )


class _AnyInput(msgspec.Struct, frozen=True):
    """The server checks the input itself."""


def as_tool(listed: ServerTool, settings: McpServer, call: CallTool) -> Tool:
    async def run(**given: Any) -> Any:
        return await call(listed.name, given)

    return Tool(
        listed.full_name,
        listed.description,
        listed.schema,
        run,
        _AnyInput,
        repeatable=listed.is_repeatable,
        needs_approval=settings.needs_approval(listed.name),
        timeout=settings.timeout_seconds,
        # The text is cut already; images are counted separately.
        output_bytes=settings.output_bytes * 2 + IMAGE_BYTES,
        runs_on="mcp",
    )

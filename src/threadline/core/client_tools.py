"""Client tools: tools that the caller runs. A model is offered them; a call of one stays open until its output comes.

They are declared by an agent's settings or by a request. Both are bounded: every round sends them all to the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from threadline.core import jsontext
from threadline.core.errors import InvalidInput, LimitExceeded, quote
from threadline.core.turns import Surface

CLIENT_SURFACES: frozenset[Surface] = frozenset(("web", "api"))
"""Where a caller can run a tool and answer later. Chats on platforms, rooms and terminals cannot."""
MAX_TOOLS = 32
MAX_DESCRIPTION = 4_000
MAX_SCHEMA_BYTES = 16_384
MAX_DECLARED_BYTES = 65_536
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class ClientTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`schema` is the JSON Schema of the input, which is an object."""

    name: str
    description: str = ""
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


def check_client_tools(tools: tuple[ClientTool, ...]) -> tuple[ClientTool, ...]:
    """The tools. InvalidInput or LimitExceeded, with the fault, if a model cannot be offered them."""
    if len(tools) > MAX_TOOLS:
        raise LimitExceeded("client tools", MAX_TOOLS, len(tools))
    total = 0
    for tool in tools:
        total += _check(tool)
    if total > MAX_DECLARED_BYTES:
        raise LimitExceeded("size of all client tools in bytes", MAX_DECLARED_BYTES, total)
    names = [tool.name for tool in tools]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f"client tool names must be unique, got {quote(repeated)} twice")
    return tools


def _check(tool: ClientTool) -> int:
    """The size of the tool in bytes."""
    if not TOOL_NAME.fullmatch(tool.name):
        raise InvalidInput(f"client tool name must match {TOOL_NAME.pattern}, got {quote(tool.name)}")
    if len(tool.description) > MAX_DESCRIPTION:
        raise LimitExceeded(f"description of client tool {tool.name}", MAX_DESCRIPTION, len(tool.description))
    if tool.schema.get("type") != "object":
        found = quote(tool.schema.get("type"))
        raise InvalidInput(f"schema of client tool {tool.name} must have `type` 'object', got {found}")
    size = len(jsontext.dump(tool.schema, f"schema of client tool {tool.name}"))
    if size > MAX_SCHEMA_BYTES:
        raise LimitExceeded(f"schema of client tool {tool.name} in bytes", MAX_SCHEMA_BYTES, size)
    return size + len(tool.description.encode(errors="surrogatepass"))


def read_declared(given: Any, what: str) -> tuple[ClientTool, ...]:
    """The tools that a request declares, as clients write them: `{NAME: {description, parameters}}`. Other keys are
    the client's own."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"`{what}` must be an object of tools by name, got {jsontext.type_of(given)}")
    if len(given) > MAX_TOOLS:
        raise LimitExceeded("client tools", MAX_TOOLS, len(given))
    return check_client_tools(tuple(_read_tool(name, tool, what) for name, tool in given.items()))


def _read_tool(name: str, given: Any, what: str) -> ClientTool:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"`{what}.{name[:64]}` must be an object, got {jsontext.type_of(given)}")
    description, schema = given.get("description") or "", given.get("parameters")
    if not isinstance(description, str):
        raise InvalidInput(f"description of client tool {quote(name)} must be a string")
    if not isinstance(schema, dict):
        found = jsontext.type_of(schema)
        raise InvalidInput(f"`parameters` of client tool {quote(name)} must be a JSON Schema object, got {found}")
    return ClientTool(name, description, schema)


def offered_to(surface: Surface, seen: Mapping[str, Any]) -> tuple[ClientTool, ...] | None:
    """What a turn's request declared; None where no caller can run a tool. `seen` is the turn's."""
    if surface not in CLIENT_SURFACES:
        return None
    return msgspec.convert(seen.get(SEEN_KEY, ()), tuple[ClientTool, ...])


SEEN_KEY = "client_tools"
"""In `Turn.seen`: the tools that the request declared."""


def stored_form(tools: tuple[ClientTool, ...]) -> dict[str, Any]:
    """For `Turn.seen`."""
    return {SEEN_KEY: msgspec.to_builtins(tools)} if tools else {}

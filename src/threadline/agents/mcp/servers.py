"""The MCP servers of the settings: one connection each per process, started when an agent that uses them is built.

Agents get their tools, and two tools to list and read resources; the terminal gets their prompts as commands and their
resources as context. A server that is down costs a turn its tools, with a warning, and never more than a short wait.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from threadline.agents.mcp.catalogue import Catalogue, McpPrompt, McpResource, ServerTool, as_tool, full_name
from threadline.agents.mcp.connection import Connection, State
from threadline.agents.mcp.content import prompt_text, resource_output, tool_output
from threadline.agents.tool_execution import ToolFailed
from threadline.agents.tools import Tool, Toolset, ToolSource
from threadline.core.errors import AgentFailed, ExtraMissing, InvalidInput, NotFound, SettingsInvalid, quote
from threadline.core.mcp_servers import McpServer, check_server

WAIT_SECONDS = 15.0
"""How long a turn waits for servers that are being connected. Later turns do not wait for one that has failed."""
_LISTED = 200
"""Resources in one answer to a model."""
_READ = {
    "type": "object",
    "properties": {"uri": {"type": "string", "description": "as listed"}},
    "required": ["uri"],
}
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class ServerReport(NamedTuple):
    """What a server offers, or why it cannot be used. `seconds` is how long connecting took."""

    name: str
    state: State
    reason: str
    seconds: float
    catalogue: Catalogue


class McpServers:
    """SettingsInvalid if a server's settings are not valid."""

    def __init__(self, settings: Mapping[str, McpServer]) -> None:
        for name, server in settings.items():
            check_server(name, server)
        self._settings = settings
        self._connections: dict[str, Connection] = {}

    @property
    def names(self) -> list[str]:
        return sorted(self._settings)

    def start(self, names: Sequence[str]) -> None:
        """Connects to these servers in the background. SettingsInvalid for an unknown name, ExtraMissing."""
        for name in names:
            self._connection(name).start()

    def source(self, names: Sequence[str]) -> ToolSource:
        """The tools of these servers, which are started. SettingsInvalid for an unknown name, ExtraMissing."""
        self.start(names)
        return _ServerTools([self._connection(name) for name in names])

    def _connection(self, name: str) -> Connection:
        if name not in self._settings:
            known = ", ".join(self.names) or "none"
            raise SettingsInvalid(f"there is no MCP server {quote(name)}: the settings have {known}")
        if name not in self._connections:
            if importlib.util.find_spec("mcp") is None:
                raise ExtraMissing("mcp", "MCP servers")
            self._connections[name] = Connection(name, self._settings[name])
        return self._connections[name]

    async def report(self, names: Sequence[str] | None = None) -> list[ServerReport]:
        """Connects to these servers, or to all, and says what they offer. Bounded by their `connect_seconds`."""
        chosen = [self._connection(name) for name in (self.names if names is None else names)]
        for connection in chosen:
            connection.start()
        await asyncio.gather(*(each.settle(each.settings.connect_seconds * 2 + 1) for each in chosen))
        return [
            ServerReport(each.name, each.state, each.reason, each.connect_seconds, each.catalogue) for each in chosen
        ]

    @property
    def started_names(self) -> list[str]:
        return sorted(self._connections)

    def failure(self, name: str) -> str | None:
        """Why a server that was started cannot be used; None if it can, or is still being connected."""
        connection = self._connection(name)
        return connection.reason if connection.state == "failed" else None

    def connected_prompts(self) -> list[McpPrompt]:
        """The prompts of the servers that are connected now. Does not wait."""
        return [prompt for each in self._ready() for prompt in each.catalogue.prompts]

    def connected_resources(self) -> list[McpResource]:
        """The resources of the servers that are connected now. Does not wait."""
        return [resource for each in self._ready() for resource in each.catalogue.resources]

    async def prompts(self) -> list[McpPrompt]:
        """The prompts of all servers that were started."""
        await self._settle()
        return self.connected_prompts()

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> str:
        """The text of a prompt, by its full name `SERVER__name`. NotFound; InvalidInput if an argument is missing or
        unknown; AgentFailed if the server fails."""
        found = next((each for each in await self.prompts() if each.full_name == name), None)
        if found is None:
            raise NotFound("prompt", name)
        given, known = dict(arguments or {}), [each.name for each in found.arguments]
        if missing := [each.name for each in found.arguments if each.required and each.name not in given]:
            raise InvalidInput(f"prompt {name} needs {', '.join(missing)}")
        if unknown := next((key for key in given if key not in known), None):
            raise InvalidInput(f"prompt {name} has no {quote(unknown)}: use {', '.join(known) or 'no arguments'}")
        connection = self._connection(found.server)
        try:
            result = await connection.request(lambda client: client.get_prompt(found.name, given))
        except ToolFailed as exc:
            raise AgentFailed(str(exc)) from exc
        return prompt_text(result, connection.settings.output_bytes)

    async def resources(self) -> list[McpResource]:
        """The resources of all servers that were started."""
        await self._settle()
        return self.connected_resources()

    async def read(self, server: str, uri: str) -> Any:
        """The contents of a resource: a text, or content blocks if there are images. AgentFailed, SettingsInvalid."""
        try:
            return await _read(self._connection(server), uri)
        except ToolFailed as exc:
            raise AgentFailed(str(exc)) from exc

    async def _settle(self) -> None:
        await asyncio.gather(*(each.settle(WAIT_SECONDS) for each in self._connections.values()))

    def _ready(self) -> list[Connection]:
        return [each for each in self._connections.values() if each.state == "ready"]

    async def close(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(each.close() for each in connections))


class _ServerTools:
    """A ToolSource. Tools are made again only when a server's catalogue has changed."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        self._made: dict[str, tuple[Catalogue, tuple[Tool, ...]]] = {}

    async def offer(self) -> Toolset:
        await asyncio.gather(*(each.settle(WAIT_SECONDS) for each in self._connections if each.state != "ready"))
        tools: list[Tool] = []
        warnings: list[str] = []
        for each in self._connections:
            if each.state == "ready":
                tools += self._tools(each)
            else:
                reason = each.reason if each.state == "failed" else f"it did not answer within {WAIT_SECONDS:g} s"
                warnings.append(f"MCP server {each.name} is not available, so its tools are missing: {reason}")
        return Toolset(tuple(tools), tuple(warnings))

    def _tools(self, connection: Connection) -> tuple[Tool, ...]:
        known = self._made.get(connection.name)
        if known is None or known[0] is not connection.catalogue:
            known = self._made[connection.name] = (connection.catalogue, _make_tools(connection))
        return known[1]


def _make_tools(connection: Connection) -> tuple[Tool, ...]:
    settings, catalogue = connection.settings, connection.catalogue

    async def call(name: str, given: dict[str, Any]) -> Any:
        result = await connection.request(lambda client: client.call_tool(name, given))
        return tool_output(result, settings.output_bytes)

    async def use_resources(name: str, given: dict[str, Any]) -> Any:
        if name == "read_resource":
            return await _read(connection, str(given.get("uri", "")))
        listed = connection.catalogue.resources
        return [
            {key: value for key, value in each._asdict().items() if value and key != "server"}
            for each in listed[:_LISTED]
        ]

    tools = [as_tool(each, settings, call) for each in catalogue.tools]
    if catalogue.has_resources:
        names = [tool.name for tool in tools]
        more = (
            ServerTool("", "list_resources", f"List the resources of {connection.name}.", _NOTHING, True),
            ServerTool("", "read_resource", f"Read a resource of {connection.name} by its URI.", _READ, True),
        )
        tools += [
            as_tool(each._replace(full_name=full_name(connection.name, each.name, names)), settings, use_resources)
            for each in more
            if settings.allows(each.name)
        ]
    return tuple(tools)


async def _read(connection: Connection, uri: str) -> Any:
    result = await connection.request(lambda client: client.read_resource(uri))
    return resource_output(result, connection.settings.output_bytes)

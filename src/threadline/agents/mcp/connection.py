"""One supervised connection to an MCP server: connects, lists what the server offers, reconnects with backoff.

A single task owns the connection, because the SDK requires that it is opened and closed by the same task; calls come
from any task. Everything that waits for the server is bounded: connecting and listing by `connect_seconds`, calls by
`timeout_seconds`. A failure is a state with a reason, never an exception of the task.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from threadline.agents.mcp.catalogue import Catalogue, read_prompts, read_resources, read_tools
from threadline.agents.mcp.content import plain
from threadline.agents.tool_execution import ToolFailed, describe_error
from threadline.core.errors import ThreadlineError
from threadline.core.mcp_servers import McpServer, resolve

if TYPE_CHECKING:
    from mcp import Client

State = Literal["connecting", "ready", "failed"]

FIRST_DELAY = 0.5
LONGEST_DELAY = 60.0
STABLE_SECONDS = 60.0
"""A connection that held for so long starts again with the shortest delay."""
RECONNECT_SECONDS = 10.0
"""How long a call waits for a server that is being restarted. The call was not sent, so waiting is safe."""
PAGES = 100
"""Of one list: a server whose pages never end is cut off."""
_REASON = 500
_logger = logging.getLogger("threadline.mcp")


class Connection:
    def __init__(self, name: str, settings: McpServer) -> None:
        self.name = name
        self.settings = settings
        self.state: State = "connecting"
        self.reason = "it has not been started"
        self.catalogue = Catalogue()
        self.connect_seconds = 0.0
        """How long the last successful attempt took."""
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        # Set while the state is not `connecting`: a turn waits for it, with a time limit.
        self._settled = asyncio.Event()
        # Set when the server's lists have changed, or when the connection is lost.
        self._wake = asyncio.Event()
        self._lost = ""
        self._was_ready = False

    def start(self) -> None:
        """Connects in the background. A second call does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervise(), name=f"mcp server {self.name}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def settle(self, seconds: float) -> bool:
        """Waits until the server is ready or has failed. Whether it is ready."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        return self.state == "ready"

    async def request(self, send: Callable[[Client], Awaitable[Any]]) -> dict[str, Any]:
        """The result of a request, as plain data. ToolFailed if the server is not connected, refuses or fails."""
        from mcp import MCPError  # noqa: PLC0415 - an extra, imported already

        if not await self.settle(min(RECONNECT_SECONDS, self.settings.timeout_seconds)) or self._client is None:
            raise ToolFailed(f"MCP server {self.name!r} is not connected: {self.reason}")
        client = self._client
        try:
            result = await send(client)
        except MCPError as exc:
            if _ends_session(exc):
                self._note_loss(client, exc.message)
                raise ToolFailed(f"MCP server {self.name!r} ended during the call, and is restarted") from exc
            raise ToolFailed(plain(exc.message, _REASON * 4) or "the server refused the request") from exc
        except Exception as exc:
            # The SDK raises many kinds: for a result that is not valid, for a server that cannot be reached.
            raise ToolFailed(f"MCP server {self.name!r} failed: {plain(describe_error(exc), _REASON)}") from exc
        data: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return data

    def _note_loss(self, client: Client, reason: str) -> None:
        """Later calls wait for the next connection. A program's end is reported, with its reason, by `_lose`."""
        if client is self._client:
            self._client, self.state = None, "connecting"
            self._settled.clear()
            if self.settings.url:
                self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self._client is not None:
            self._client, self.state = None, "connecting"
            self._settled.clear()
        self._lost = reason
        self._wake.set()

    async def _supervise(self) -> None:
        loop, delay, attempt = asyncio.get_running_loop(), FIRST_DELAY, 0
        while True:
            began = loop.time()
            try:
                # A server that does not answer the question for its version gets the older handshake next time.
                reason = await self._hold_connection("legacy" if attempt % 2 else "auto")
            except Exception as exc:  # noqa: BLE001 - whatever the SDK raises is the reason of the failure
                reason = _describe(exc)
            self._client, self.reason = None, plain(reason, _REASON)
            _logger.warning("MCP server %s failed: %s", self.name, self.reason)
            # One that was connected is given one more attempt before calls and turns no longer wait for it.
            self.state = "connecting" if self._was_ready else "failed"
            (self._settled.clear if self._was_ready else self._settled.set)()
            attempt = 0 if self._was_ready else attempt + 1
            delay = FIRST_DELAY if loop.time() - began > STABLE_SECONDS else min(delay * 2, LONGEST_DELAY)
            await asyncio.sleep(delay)

    async def _hold_connection(self, mode: str) -> str:
        """Connects, publishes what the server offers, and follows its changes. Returns why the connection ended."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._lost, self._was_ready = "", False
        self._wake.clear()
        async with self._connect(mode) as client:
            async with asyncio.timeout(self.settings.connect_seconds):
                self.catalogue = await self._list(client)
            self._client, self.state, self.reason, self._was_ready = client, "ready", "", True
            self.connect_seconds = loop.time() - began
            self._settled.set()
            _logger.info("MCP server %s is connected: %d tools", self.name, len(self.catalogue.tools))
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._lost:
                    return self._lost
                async with asyncio.timeout(self.settings.connect_seconds):
                    self.catalogue = await self._list(client)

    @asynccontextmanager
    async def _connect(self, mode: str) -> AsyncIterator[Client]:
        # In a thread: importing the SDK takes most of a second, and the user is typing.
        sdk = await asyncio.to_thread(_import_sdk)
        async with sdk.open_client(self.settings, self._resolve, mode, self._note_change, self._lose) as client:
            yield client

    def _resolve(self, section: str, values: dict[str, str]) -> dict[str, str]:
        where = f"`mcp.{self.name}.{section}"
        return {key: resolve(f"{where}.{key}`", value, os.environ) for key, value in values.items()}

    def _note_change(self) -> None:
        self._wake.set()

    async def _list(self, client: Client) -> Catalogue:
        offers = client.server_capabilities
        tools = await _pages(client.list_tools, "tools") if offers.tools else []
        prompts = await _pages(client.list_prompts, "prompts") if offers.prompts else []
        resources: list[dict[str, Any]] = []
        if offers.resources:
            resources = await _pages(client.list_resources, "resources")
            resources += await _list_templates(client)
        return Catalogue(
            read_tools(self.name, [tool for tool in tools if self.settings.allows(str(tool.get("name")))]),
            read_prompts(self.name, prompts),
            read_resources(self.name, resources),
            offers.resources is not None,
        )


def _import_sdk() -> Any:
    from threadline.agents.mcp import sdk  # noqa: PLC0415 - slow to import

    return sdk


async def _pages(fetch: Callable[..., Awaitable[Any]], key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = (await fetch(cursor=cursor, cache_mode="bypass")).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        found += page.get(key) or []
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return found


async def _list_templates(client: Client) -> list[dict[str, Any]]:
    from mcp import MCPError  # noqa: PLC0415 - imported already

    try:
        return await _pages(client.list_resource_templates, "resourceTemplates")
    except MCPError:
        # Many servers with resources have no templates and answer with an error.
        return []


def _ends_session(exc: Any) -> bool:
    """Whether no further request can succeed: the transport is closed, or an HTTP server forgot the session."""
    from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST  # noqa: PLC0415 - imported already

    forgotten = exc.code == INVALID_REQUEST and exc.message == "Session terminated"
    return bool(exc.code == CONNECTION_CLOSED or forgotten)


def _describe(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if isinstance(exc, TimeoutError):
        return "it did not answer in time"
    if isinstance(exc, FileNotFoundError):
        return f"there is no program {exc.filename!r}"
    is_sentence = isinstance(exc, ThreadlineError | ConnectionError) or type(exc).__name__ == "MCPError"
    return str(exc) if is_sentence and str(exc) else describe_error(exc)

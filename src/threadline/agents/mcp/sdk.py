"""The MCP SDK: opens a client on a program or a URL. Imported in a thread, because the SDK is slow to import."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from threadline.agents.mcp.http import make_http_client
from threadline.agents.mcp.stdio import MESSAGE_BYTES, Program, start_program
from threadline.core.mcp_servers import McpServer
from threadline.version import __version__

_CHANGES = (
    mcp_types.ToolListChangedNotification,
    mcp_types.PromptListChangedNotification,
    mcp_types.ResourceListChangedNotification,
)
# What a server does wrong is reported once, by the connection, and not with a traceback for each message.
for _name in ("mcp", "client"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@asynccontextmanager
async def open_client(
    settings: McpServer,
    resolve: Callable[[str, dict[str, str]], dict[str, str]],
    mode: str,
    note_change: Callable[[], None],
    lose: Callable[[str], None],
) -> AsyncIterator[Client]:
    """A client that has exchanged versions with its server. `note_change` is called when the server's lists have
    changed, `lose` with a reason when the connection has ended."""

    async def handle(message: Any) -> None:
        if isinstance(message, _CHANGES):
            note_change()

    async with AsyncExitStack() as stack:
        program: Program | None = None
        if settings.command:
            env = resolve("env", settings.env)
            program, read, write = await stack.enter_async_context(start_program(settings.command, env))
            transport: Any = _given((read, write))
        else:
            url = resolve("url", {"url": settings.url})["url"]
            http = make_http_client(resolve("headers", settings.headers), seconds=settings.timeout_seconds)
            await stack.enter_async_context(http)
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=MESSAGE_BYTES)
        client = Client(
            transport,
            mode=mode,
            read_timeout_seconds=settings.timeout_seconds,
            message_handler=handle,
            client_info=mcp_types.Implementation(name="threadline", version=__version__),
            cache=None,
        )
        try:
            async with asyncio.timeout(settings.connect_seconds):
                await stack.enter_async_context(client)
        except Exception as exc:
            # How the program ended says more than that its connection is closed.
            if program is not None and not isinstance(exc, TimeoutError) and await program.has_ended():
                raise ConnectionError(await program.describe_end()) from exc
            raise
        tasks = [asyncio.create_task(_follow_changes(client, note_change))]
        if program is not None:
            tasks.append(asyncio.create_task(_wait_for_end(program, lose)))
        try:
            yield client
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _given(streams: tuple[Any, Any]) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    @asynccontextmanager
    async def transport() -> AsyncIterator[tuple[Any, Any]]:
        yield streams

    return transport()


async def _wait_for_end(program: Program, lose: Callable[[str], None]) -> None:
    await program.ended.wait()
    lose(await program.describe_end())


async def _follow_changes(client: Client, note_change: Callable[[], None]) -> None:
    """Servers of the newest protocol send changes only on request; older ones send notifications."""
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    try:
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as events:
            async for _ in events:
                note_change()
    except (MCPError, SubscriptionLost, TimeoutError):
        # Without it the lists are as they were at the start.
        return

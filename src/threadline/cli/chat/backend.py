"""What a chat is opened on: the library on a local database, or the client of a service with `--server`.

Only this module knows which of the two it is. A local chat starts with any database: one that cannot be written is
read, and where none can be opened the chat starts in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from threadline.cli import settings_file
from threadline.cli.chat.approval import CallChecks
from threadline.cli.chat.tool_rules import ToolRules
from threadline.core.errors import NotFound, StoreFailed
from threadline.core.threads import Scope, ThreadFields
from threadline.ports.gateway import Gateway
from threadline.settings import AgentSettings, Settings, default_database

if TYPE_CHECKING:
    from threadline.agents.mcp.servers import McpServers
    from threadline.agents.tools import Tool
    from threadline.bootstrap import Threadline
    from threadline.cli.chat.memory_copy import MemoryCopy

# A person waits: after this the chat continues in memory, and saves what was said once the lock is free.
_LOCK_SECONDS = 5.0


class ChatBackend(NamedTuple):
    """`failure` says why the database cannot be written; `is_in_memory`, that it cannot be opened either. Only a local
    chat has a copy in memory."""

    gateway: Gateway
    default_agent: str
    new_thread: ThreadFields
    history: Path | None
    memory: MemoryCopy | None = None
    failure: StoreFailed | None = None
    is_in_memory: bool = False
    list_agents: Callable[[], Awaitable[Sequence[str]]] | None = None
    checks: CallChecks | None = None
    """What decides about calls of tools before the user is asked."""
    is_unconfigured: bool = False
    """Whether the settings name no agent."""
    currency: str = ""
    """Of costs; "" if it is not known, as for a service."""
    servers: McpServers | None = None
    """The MCP servers of the settings. Those of the agent are being connected."""
    agents: Mapping[str, AgentSettings] = {}
    """The agents of the settings."""


def open_backend(args: argparse.Namespace) -> contextlib.AbstractAsyncContextManager[ChatBackend]:
    return _open_local(args) if args.server is None else _open_service(args)


@asynccontextmanager
async def _open_local(args: argparse.Namespace) -> AsyncIterator[ChatBackend]:
    # Imported here: a chat on a service needs no store.
    from threadline import bootstrap  # noqa: PLC0415
    from threadline.cli.chat.memory_copy import MemoryCopy  # noqa: PLC0415
    from threadline.cli.connection import load_settings, open_readable, user_scope  # noqa: PLC0415

    settings = _bound_lock_wait(load_settings(args))
    checks, tools = _workspace(args, settings)
    fields = ThreadFields(system_prompt=args.system, working_dir=_working_dir())

    async def open_database() -> Threadline:
        return await bootstrap.open(settings=settings, tools=tools)

    async with contextlib.AsyncExitStack() as opened:
        try:
            tl, failure = await open_readable(open_database, settings)
        except StoreFailed as exc:
            memory = MemoryCopy(settings, open_database, None, can_write=False, tools=tools)
            opened.push_async_callback(memory.close)
            gateway, _ = await memory.open(None)
            configured = sorted({"rehearsal", *settings.agents})

            async def list_configured() -> Sequence[str]:
                return configured

            history = _history_file(settings.database)
            yield ChatBackend(gateway, settings.agent, fields, history, memory, exc, True, list_configured, checks)
            return
        opened.push_async_callback(tl.close)
        memory = MemoryCopy(settings, open_database, tl, can_write=failure is None, tools=tools)
        opened.push_async_callback(memory.close)
        scope = user_scope(tl)
        if (agent := settings.agents.get(args.agent or settings.agent)) is not None:
            # In the background, while the user types the first question.
            tl.mcp_servers.start(agent.mcp)
        await _prepare(tl, scope, args.agent)

        async def list_agents() -> Sequence[str]:
            own = await tl.store.scoped(scope).agents()
            return sorted({*tl.directory.ids(), *(row.id for row in own if row.enabled)})

        gateway = tl.as_user(surface="cli")
        yield ChatBackend(
            gateway,
            settings.agent,
            fields,
            # Its folder is there now, also at the first start.
            _history_file(settings.database),
            memory,
            failure,
            list_agents=list_agents,
            checks=checks,
            is_unconfigured=not settings.agents,
            currency=settings.currency,
            servers=tl.mcp_servers,
            agents=settings.agents,
        )


async def _prepare(tl: Threadline, scope: Scope, agent_id: str | None) -> None:
    """NotFound if there is no such agent."""
    # A database that fails here fails again with the first question, which continues in memory.
    with contextlib.suppress(StoreFailed):
        if agent_id:
            await tl.directory.find(scope, agent_id)
        # No service sweeps a local database: end turns and drop stream chunks that a killed terminal left.
        await tl.recovery.recover(scope)
        await tl.recovery.drop_chunks(scope)


@asynccontextmanager
async def _open_service(args: argparse.Namespace) -> AsyncIterator[ChatBackend]:
    from threadline.client import connect  # noqa: PLC0415 - an extra

    token = args.token or os.environ.get("THREADLINE_TOKEN")
    async with connect(args.server, token=token) as client:
        offered = await client.agents()
        known = sorted({*offered.shared, *(agent.id for agent in offered.agents if agent.enabled)})
        if args.agent and args.agent not in known:
            raise NotFound("agent", args.agent)

        async def list_agents() -> Sequence[str]:
            return known

        fields = ThreadFields(system_prompt=args.system)
        history = _history_file(str(default_database(os.environ)))
        yield ChatBackend(client, args.agent or offered.default, fields, history, list_agents=list_agents)


def _workspace(args: argparse.Namespace, settings: Settings) -> tuple[CallChecks, tuple[Tool, ...]]:
    """The rules of this folder and, if they are wanted, the built-in tools for its files."""
    folder = _working_dir()
    wanted = settings.workspace.tools if args.tools is None else args.tools
    if folder is None:
        return CallChecks(), ()
    rules = ToolRules(settings.workspace.allow.get(folder, ()), settings.workspace.deny.get(folder, ()))

    def remember(rule: str) -> str:
        path = settings_file.file_to_change(args.settings)
        text = settings_file.append_to_list(settings_file.read_text(path), "workspace.allow", folder, rule)
        settings_file.write(path, text)
        return str(path)

    if not wanted:
        return CallChecks(rules, None, remember), ()
    # Imported here: a chat without tools does not need them.
    from threadline.agents.workspace import Workspace  # noqa: PLC0415
    from threadline.agents.workspace_tools import workspace_tools  # noqa: PLC0415

    workspace = Workspace(Path(folder))
    return CallChecks(rules, workspace, remember), workspace_tools(workspace)


def _bound_lock_wait(settings: Settings) -> Settings:
    seconds = min(_LOCK_SECONDS, settings.timeouts.file_lock_seconds)
    timeouts = msgspec.structs.replace(settings.timeouts, file_lock_seconds=seconds)
    return msgspec.structs.replace(settings, timeouts=timeouts)


def _working_dir() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # the folder was deleted
        return None


def _history_file(database: str) -> Path | None:
    """The file for lines that were typed, beside the database and readable only by its owner."""
    if "://" in database or database == ":memory:":
        return None
    path = Path(database).expanduser().parent / "chat-history"
    try:
        path.touch(mode=0o600)
    except OSError:
        return None
    return path

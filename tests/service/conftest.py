"""A service on a real port with a scripted agent, and clients of several users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.running_service import Client, client_of, serving
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.threads import Scope
from threadline.settings import ServiceSettings, Settings, VaultSettings
from threadline.testing.postgres import shared_server
from threadline.vault import new_key

SERVICE = ServiceSettings(heartbeat_seconds=0.05, recovery_seconds=0.05, grace_seconds=1.0, origins=("http://page",))


@pytest.fixture
def scripted_agent() -> ScriptedAgent:
    return ScriptedAgent()


@pytest.fixture
def settings() -> Settings:
    return Settings(database=":memory:", agent="scripted", service=SERVICE, vault=VaultSettings({"test": new_key()}))


@pytest.fixture
async def threadline(settings: Settings, scripted_agent: ScriptedAgent) -> AsyncIterator[Threadline]:
    async with open_threadline(settings=settings, agents={"scripted": make_agent(scripted_agent)}) as opened:
        yield opened


@pytest.fixture
async def client(threadline: Threadline) -> AsyncIterator[Client]:
    async with serving(threadline) as client:
        yield client


async def authenticate_by_header(request: Request) -> Scope:
    """Authenticates as the user that a header names."""
    role: Any = request.headers.get("test-role", "member")
    return Scope(request.headers.get("test-tenant", "local"), request.headers["test-user"], role)


@pytest.fixture
async def people(threadline: Threadline) -> AsyncIterator[dict[str, Client]]:
    """Clients of several users on one service."""
    headers = {
        "alice": {"test-user": "alice"},
        "bob": {"test-user": "bob"},
        "viewer": {"test-user": "alice", "test-role": "viewer"},
        "admin": {"test-user": "root", "test-role": "admin"},
        "other_tenant": {"test-user": "alice", "test-tenant": "other"},
    }
    async with serving(threadline, authenticate=authenticate_by_header) as anyone:
        clients = {name: client_of(anyone.url, each) for name, each in headers.items()}
        yield clients
        for each in clients.values():
            await each.close()


@pytest.fixture
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database for tests that start processes."""
    return str(tmp_path / "t.db") if request.param == "file" else await shared_server().create_database()


@asynccontextmanager
async def held(scripted_agent: ScriptedAgent) -> AsyncIterator[asyncio.Event]:
    """The agent waits after its first line until the event is set, or until the block ends."""
    scripted_agent.gate = asyncio.Event()
    scripted_agent.waiting.clear()
    try:
        yield scripted_agent.gate
    finally:
        scripted_agent.gate.set()

"""A database that another transaction has locked, through HTTP: answers within a bounded time, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx2
import pytest

from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import SERVICE, held
from tests.service.running_service import Client, serving
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.timeouts import Timeouts
from threadline.settings import Settings
from threadline.testing.postgres import shared_server

SHORT = Timeouts(pool_seconds=0.3, lock_seconds=0.3, file_lock_seconds=0.3)


@pytest.fixture
async def dsn() -> str:
    return await shared_server().create_database()


@asynccontextmanager
async def stalled(dsn: str) -> AsyncIterator[None]:
    """While entered, another transaction holds the table of threads, as a migration or a VACUUM FULL does."""
    connection = await asyncpg.connect(shared_server().admin_dsn(dsn))
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE threadline.threads IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


@asynccontextmanager
async def served(
    database: str, timeouts: Timeouts, agent: ScriptedAgent | None = None
) -> AsyncIterator[tuple[Threadline, Client]]:
    settings = Settings(database=database, agent="scripted", service=SERVICE, timeouts=timeouts)
    agents = {"scripted": make_agent(agent or ScriptedAgent())}
    async with open_threadline(settings=settings, agents=agents) as threadline, serving(threadline) as client:
        yield threadline, client


async def ask(client: Client, number: int) -> httpx2.Response:
    return await client.post_chat("Hi", f"key{number}", {"idempotency-key": f"once{number}"})


async def ask_again(client: Client, number: int) -> None:
    """As a client does that was told to: at once, with the same key. On a slow machine these short limits are reached
    without a stall."""
    async with asyncio.timeout(60):
        while (answer := await ask(client, number)).status_code == 503:
            pass
    assert client.chunks(answer)[-1]["type"] == "finish"


async def check_stall(client: Client, threadline: Threadline, dsn: str, seconds: float) -> None:
    """Thirty requests during a stall: each gets 503, and its retry is answered once."""
    await client.ask("Hi", "before")
    async with stalled(dsn):
        began = time.monotonic()
        answers = await asyncio.gather(*(ask(client, number) for number in range(30)))
        ready = await client.http.get("/readyz")
        assert time.monotonic() - began < seconds
        for answer in (*answers, ready):
            assert (answer.status_code, answer.json()["code"]) == (503, "store_busy")
            assert answer.headers["retry-after"] == "5"
        assert (await client.http.get("/healthz")).status_code == 200
    assert (await client.http.get("/readyz")).status_code == 200
    await asyncio.gather(*(ask_again(client, number) for number in range(30)))
    for number in range(30):
        assert [role for role, _ in await client.messages(f"key{number}")] == ["user", "assistant"]
    async with asyncio.timeout(30):
        while threadline.store.pool_stats().in_use:  # noqa: ASYNC110 - a number cannot be awaited
            await asyncio.sleep(0.01)


@pytest.mark.req("R-04")
async def test_requests_during_a_lock_get_503_and_their_retries_are_answered(dsn: str) -> None:
    async with served(dsn, SHORT) as (threadline, client):
        await check_stall(client, threadline, dsn, seconds=20)


@pytest.mark.slow
@pytest.mark.req("R-04")
async def test_requests_during_a_lock_get_503_and_their_retries_are_answered_with_shipped_settings(dsn: str) -> None:
    async with served(dsn, Timeouts()) as (threadline, client):
        await check_stall(client, threadline, dsn, seconds=40)


@pytest.mark.req("R-04")
async def test_a_reply_that_ends_during_a_lock_is_stored_afterwards(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    agent = ScriptedAgent()
    async with served(dsn, SHORT, agent) as (_, client), held(agent) as gate:
        asking = asyncio.create_task(client.ask("Hi", "key"))
        async with asyncio.timeout(30):
            await agent.waiting.wait()
            async with stalled(dsn):
                gate.set()
                while "turn not finished yet" not in caplog.text:  # noqa: ASYNC110 - a log cannot be awaited
                    await asyncio.sleep(0.01)
            assert (await asking)[-1]["type"] == "finish"
        assert await client.messages("key") == [("user", "Hi"), ("assistant", "Hello, you.")]


@pytest.mark.req("R-04")
async def test_a_write_of_another_process_makes_a_file_busy_and_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    async with served(str(path), SHORT) as (_, client):
        await client.ask("Hi", "before")
        # Another library in this process would share SQLite's locks; this is a process of its own.
        script = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('BEGIN IMMEDIATE'); print(1); input()"
        other = await asyncio.create_subprocess_exec(
            "python3", "-u", "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert other.stdout is not None
        assert await other.stdout.readline()
        answers = await asyncio.gather(*(ask(client, number) for number in range(10)))
        for answer in (*answers, await client.http.get("/readyz")):
            assert (answer.status_code, answer.json()["code"]) == (503, "store_busy")
        await other.communicate(b"\n")
        assert (await client.http.get("/readyz")).status_code == 200
        await asyncio.gather(*(ask_again(client, number) for number in range(10)))

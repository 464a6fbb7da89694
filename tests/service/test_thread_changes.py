"""Long polling: requests are woken by changes in any process, not by frequent reads."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.conftest import postgres_database
from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.running_service import THREADS, Client, serving, wait_until_idle
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.messages import user
from threadline.core.threads import Scope
from threadline.library import ThreadHandle
from threadline.service.app import build_app
from threadline.service.routes import thread_changes
from threadline.service.routes.thread_changes import ThreadChangeRoutes
from threadline.settings import Settings

LONGEST = 25
NEVER = 3_600.0


class Looks:
    """Counts how often waiting requests have read the thread."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Condition()

    async def add(self) -> None:
        async with self._changed:
            self.count += 1
            self._changed.notify_all()

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: self.count >= count)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """No polling and no spacing of reads, so only a wake-up can end a wait, and it does so immediately."""
    looks, look = Looks(), ThreadChangeRoutes.read_snapshot

    async def counted(self: ThreadChangeRoutes, scope: Scope, state_key: str) -> object:
        found = await look(self, scope, state_key)
        await looks.add()
        return found

    monkeypatch.setattr(ThreadChangeRoutes, "read_snapshot", counted)
    monkeypatch.setattr(thread_changes, "POLL_SECONDS", NEVER)
    monkeypatch.setattr(thread_changes, "MIN_READ_INTERVAL_SECONDS", 0)
    return looks


@asynccontextmanager
async def waiting(
    client: Client, looks: Looks, state_key: str, wait: int = LONGEST
) -> AsyncIterator[asyncio.Task[httpx2.Response]]:
    """A request that has the current version and waits for the next."""
    seen = (await client.http.get(f"{THREADS}/{state_key}/head")).json()["version"]
    before = looks.count
    params = {"seen": seen, "wait": wait}
    task = asyncio.create_task(client.http.get(f"{THREADS}/{state_key}/head", params=params))
    # The second look comes after the watch: whatever happens from now on rings.
    await looks.reach(before + 2)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


CHANGES: dict[str, Callable[[ThreadHandle], Awaitable[object]]] = {
    "append": lambda thread: thread.append(user("Elsewhere")),
    "ask": lambda thread: thread.ask("Elsewhere"),
    "undo": lambda thread: thread.undo(),
    "load": lambda thread: thread.load("here"),
    "rename": lambda thread: thread.update(title="Lisbon"),
    "delete": lambda thread: thread.delete(),
}


async def conversation(threadline: Threadline) -> ThreadHandle:
    thread = await threadline.as_user().create_thread(state_key=f"key-{secrets.token_hex(8)}")
    await thread.ask("Hi")
    await thread.save("here")
    return thread


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_in_the_same_process_wakes_the_request(
    client: Client, threadline: Threadline, looks: Looks, change: str
) -> None:
    thread = await conversation(threadline)
    async with waiting(client, looks, thread.info.state_key) as answer:
        await CHANGES[change](thread)
        assert (await answer).status_code == 200


async def test_creating_the_thread_wakes_the_request(client: Client, threadline: Threadline, looks: Looks) -> None:
    async with waiting(client, looks, "new-one") as answer:
        await threadline.as_user().create_thread(state_key="new-one")
        assert (await answer).json()["messageCount"] == 0


@pytest.fixture(params=["file", "postgres"])
async def processes(
    request: pytest.FixtureRequest, tmp_path: Path, scripted_agent: ScriptedAgent
) -> AsyncIterator[tuple[Threadline, Threadline]]:
    """Two services that share only the database."""
    database = str(tmp_path / "threadline.db") if request.param == "file" else await postgres_database()
    settings, agents = Settings(database=database, agent="scripted"), {"scripted": make_agent(scripted_agent)}
    async with (
        open_threadline(settings=settings, agents=agents) as ours,
        open_threadline(settings=settings, agents=agents) as theirs,
    ):
        yield ours, theirs


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_in_another_process_wakes_the_request(
    processes: tuple[Threadline, Threadline], looks: Looks, change: str
) -> None:
    ours, theirs = processes
    thread = await conversation(theirs)
    async with serving(ours) as client, waiting(client, looks, thread.info.state_key) as answer:
        await CHANGES[change](thread)
        assert (await answer).status_code == 200


async def test_creating_the_thread_in_another_process_wakes_the_request(
    processes: tuple[Threadline, Threadline], looks: Looks
) -> None:
    ours, theirs = processes
    state_key = f"key-{secrets.token_hex(8)}"
    async with serving(ours) as client, waiting(client, looks, state_key) as answer:
        await theirs.as_user().create_thread(state_key=state_key)
        assert (await answer).json()["messageCount"] == 0


async def test_without_changes_the_thread_is_not_read_again(
    client: Client, threadline: Threadline, looks: Looks
) -> None:
    """Also while other threads change."""
    thread, other = await conversation(threadline), await conversation(threadline)
    async with waiting(client, looks, thread.info.state_key, wait=1) as answer:
        before = looks.count
        await other.ask("More")
        await other.undo()
        assert (await answer).status_code == 204
    assert looks.count == before


async def test_the_thread_is_polled_in_case_the_watch_misses_a_change(
    client: Client, threadline: Threadline, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_changes, "POLL_SECONDS", 0.01)
    thread = await conversation(threadline)
    async with waiting(client, looks, thread.info.state_key):
        await looks.reach(looks.count + 3)


async def test_frequent_wakes_do_not_cause_frequent_reads(
    client: Client, threadline: Threadline, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that is not visible wakes the request, as commits of other processes do."""
    monkeypatch.setattr(thread_changes, "MIN_READ_INTERVAL_SECONDS", NEVER)
    thread = await conversation(threadline)
    async with waiting(client, looks, thread.info.state_key, wait=1) as answer:
        before = looks.count
        for model in ("m1", "m2", "m3"):
            await thread.update(model=model)
        assert (await answer).status_code == 204
    assert looks.count == before


async def test_a_stopping_server_ends_waiting_requests(threadline: Threadline, looks: Looks) -> None:
    thread = await conversation(threadline)
    app = build_app(threadline)
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")
    async with http, waiting(Client(http), looks, thread.info.state_key) as answer:
        app.shutdown.start(0)
        async with asyncio.timeout(LONGEST - 5):
            assert (await answer).status_code == 204


async def test_a_disconnected_client_ends_the_wait(client: Client, threadline: Threadline, looks: Looks) -> None:
    thread = await conversation(threadline)
    async with waiting(client, looks, thread.info.state_key):
        pass
    async with asyncio.timeout(LONGEST - 5):
        await wait_until_idle(threadline)

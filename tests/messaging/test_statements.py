"""How often the database is asked for a platform's message: a few times, each one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx2
import pytest

from tests.conftest import open_database, postgres_database
from tests.messaging.conftest import KEYS, staging
from threadline.bootstrap import Threadline
from threadline.core.parts import plain_text
from threadline.core.threads import Scope, system_scope
from threadline.core.timeouts import Timeouts
from threadline.service.app import build_app
from threadline.settings import ChannelsSettings, Settings
from threadline.stores.postgres import change_watch, pool, search_indexer
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakeSlack


class Statements(list[str]):
    """What was sent to the server, in order."""

    def heard(self, record: Any) -> None:
        self.append(record.query)

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[list[str]]:
        # The driver tells of a statement in the loop's next round.
        await asyncio.sleep(0)
        self.clear()
        found: list[str] = []
        yield found
        await asyncio.sleep(0)
        found.extend(self)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    sent = Statements()
    connect = pool.Address.connect

    async def listened_to(address: pool.Address, timeouts: Timeouts, **options: Any) -> asyncpg.Connection:
        connection = await connect(address, timeouts, **options)
        connection.add_query_logger(sent.heard)
        return connection

    monkeypatch.setattr(pool.Address, "connect", listened_to)
    # Words are taken for search, and other processes are told, whenever there is time: here there is none.
    monkeypatch.setattr(search_indexer, "IDLE_SECONDS", 3_600)
    monkeypatch.setattr(change_watch, "BATCH_SECONDS", 3_600)
    return sent


@pytest.mark.req("S3-11", "S3-23")
async def test_a_message_is_acknowledged_after_a_few_statements(
    statements: Statements, tenant_id: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote, which agent answers; then claim, message and turn together. Credentials are looked up once for the
    messages of a second. Nothing runs beside it: the turn does not begin, and no sweep runs. A user's first message
    takes no more."""
    store = await open_database(await postgres_database(), clock=clock)
    slack = FakeSlack(clock)
    settings = Settings(tenant=tenant_id, channels=ChannelsSettings(keys=KEYS))
    threadline = Threadline(store, settings, clock)
    app = httpx2.ASGITransport(build_app(threadline))
    await threadline.messaging.credentials.put(Scope(tenant_id, "root", "admin"), "slack", slack.secrets)
    await store.scoped(system_scope(tenant_id)).put_link("slack", slack.person, "alice", "verified")
    monkeypatch.setattr(threadline.runner, "start", lambda *_: asyncio.get_running_loop().create_future())
    webhook = f"/api/v1/tenants/{tenant_id}/channels/slack/webhook"
    async with threadline, httpx2.AsyncClient(transport=app, base_url="http://localhost") as http:

        async def deliver(body: bytes) -> list[str]:
            async with statements.counted() as found:
                headers = {"content-type": "application/json", **slack.sign(body)}
                told = await http.post(webhook, content=body, headers=headers)
            assert [result["decision"] for result in told.json()["results"]] == ["accepted"]
            return found

        first = await deliver(slack.write("The first words bind the place"))
        sent = await deliver(slack.write("The next ones find it bound"))
    asked = [[sql for sql in found if "find_credentials" not in sql] for found in (first, sent)]
    assert [len(each) for each in asked] == [3, 3], (first, sent)
    assert len(first) == 4
    assert len(sent) <= 4


@pytest.mark.req("S3-24")
async def test_a_burst_of_one_user_waits_in_line_without_asking_the_database(
    statements: Statements, tenant_id: str, clock: ManualClock
) -> None:
    """Each turn asks for its lease when its own turn has come; polled, a hundred of them would ask all the time."""
    store = await open_database(await postgres_database(), clock=clock)
    async with staging(store, tenant_id, clock) as stage:
        await stage.link(stage.slack)
        stage.agent.gate = asyncio.Event()
        for number in range(20):
            told = await stage.slack.say(f"message {number}")
            assert told.status == 200
        await asyncio.wait_for(stage.agent.waiting.wait(), 30)
        stage.agent.gate.set()
        await stage.slack.replies(20)
        asked = [plain_text(prompt.messages[-1].parts) for prompt in stage.agent.prompts]
        # The migration that creates the function contains its name too.
        leases = [sql for sql in statements if "threadline.lease_turn(" in sql and "CREATE" not in sql]
        assert asked == [f"message {number}" for number in range(20)]
        assert len(leases) == 20
    await store.close()

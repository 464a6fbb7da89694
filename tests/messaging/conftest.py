"""A served Threadline between three stand-ins for platforms, with an agent that does as it is told.

Everybody shares one clock that stands still until a test moves it. Tests of what must hold on every database ask for
`stage`; those about one rule ask for `small_stage`, which is in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from typing import Any

import httpx2
import pytest

from tests.conftest import open_database, postgres_database
from tests.scripted_agent import ScriptedAgent, make_agent
from tests.service.conftest import authenticate_by_header
from tests.service.running_service import serving
from threadline.bootstrap import Threadline
from threadline.core.channels import OutboxRow
from threadline.core.messages import Message
from threadline.core.threads import Scope, Thread, system_scope
from threadline.core.turns import Turn
from threadline.messaging.home_threads import home_key
from threadline.ports import Store, Transaction
from threadline.settings import ChannelSettings, ChannelsSettings, ServiceSettings, Settings
from threadline.testing.clock import ManualClock
from threadline.testing.platforms import FakePlatform, FakeSlack, FakeTelegram, FakeWhatsApp
from threadline.vault import new_key

KEYS = {"first": new_key()}
SERVICE = ServiceSettings(recovery_seconds=0.05, grace_seconds=1.0)


class Stage:
    """Who is there, and a few things that every test does."""

    def __init__(
        self,
        threadline: Threadline,
        http: httpx2.AsyncClient,
        agent: ScriptedAgent,
        clock: ManualClock,
        fakes: list[Any],
    ) -> None:
        self.threadline = threadline
        self.http = http
        self.agent = agent
        self.clock = clock
        self.tenant_id = threadline.settings.tenant
        self.slack: FakeSlack = fakes[0]
        self.telegram: FakeTelegram = fakes[1]
        self.whatsapp: FakeWhatsApp = fakes[2]
        self.slack_codec = threadline.messaging.codecs["slack"]
        self.system: Transaction = threadline.store.scoped(system_scope(self.tenant_id))

    def other_tenant(self) -> Stage:
        """Another tenant of the same service."""
        other = copy(self)
        other.tenant_id = f"{self.tenant_id}-abroad"
        other.system = self.threadline.store.scoped(system_scope(other.tenant_id))
        return other

    def as_user(self, user: str = "alice") -> Transaction:
        return self.threadline.store.scoped(Scope(self.tenant_id, user))

    def caller(self, user: str = "alice", role: str = "member") -> dict[str, str]:
        """The headers that make a request this user's."""
        return {"test-user": user, "test-role": role, "test-tenant": self.tenant_id}

    async def link(self, fake: FakePlatform, user: str = "alice", sender: str | None = None) -> None:
        """Links the platform's person and forgets that it happened."""
        await self.system.put_link(fake.platform, sender or fake.person, user, "verified")

    async def say(self, fake: FakePlatform, text: str, sender: str | None = None) -> str:
        """Says something and waits for its one reply: what it was."""
        before = len(fake.sent)
        told = await fake.say(text, sender)
        assert told.status == 200, told
        return (await fake.replies(before + 1))[before].text

    async def home(self, user: str = "alice") -> Thread:
        found = await self.as_user(user).thread_by_key(home_key(self.threadline.settings.agent))
        assert found is not None
        return found

    async def history(self, user: str = "alice") -> list[str]:
        return texts(await self.as_user(user).messages((await self.home(user)).id))

    async def turns(self, user: str = "alice") -> list[Turn]:
        return await self.as_user(user).turns((await self.home(user)).id)

    async def outbox(self) -> list[OutboxRow]:
        return await self.system.outbox()


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def decisions(told: Any) -> list[str]:
    return [result["decision"] for result in httpx2.Response(200, content=told.body).json()["results"]]


@asynccontextmanager
async def staging(store: Store, tenant_id: str, clock: ManualClock, **changes: Any) -> AsyncIterator[Stage]:
    agent, own_agents = ScriptedAgent(), changes.pop("own_agents", {})
    async with AsyncExitStack() as stack:
        fakes: list[FakePlatform] = [FakeSlack(clock), FakeTelegram(clock), FakeWhatsApp(clock)]
        for fake in fakes:
            await stack.enter_async_context(fake)
        own = changes.pop("platform_settings", {})
        contexts, policies = changes.pop("contexts", "thread"), changes.pop("policies", {})
        apis: dict[str, Any] = {
            fake.platform: ChannelSettings(
                api=fake.api, contexts=contexts, policy=policies.get(fake.platform), **own.get(fake.platform, {})
            )
            for fake in fakes
        }
        settings = Settings(
            tenant=tenant_id,
            service=SERVICE,
            channels=ChannelsSettings(
                keys=KEYS,
                sweep_seconds=0.05,
                live_after_seconds=changes.pop("live_after_seconds", 0.0),
                **{**apis, **changes.pop("channels", {})},
            ),
            **{"agent": "scripted", **changes},
        )
        threadline = Threadline(store, settings, clock, agents={"scripted": make_agent(agent), **own_agents})
        client = await stack.enter_async_context(serving(threadline, authenticate=authenticate_by_header))
        for fake in fakes:
            scope = Scope(tenant_id, "root", "admin")
            await threadline.messaging.credentials.put(scope, fake.platform, fake.secrets)
            fake.webhook = f"{client.url}/api/v1/tenants/{tenant_id}/channels/{fake.platform}/webhook"
        yield Stage(threadline, client.http, agent, clock, fakes)


@pytest.fixture(params=["memory", "postgres"])
async def stage(request: pytest.FixtureRequest, tenant_id: str, clock: ManualClock) -> AsyncIterator[Stage]:
    database = ":memory:" if request.param == "memory" else await postgres_database()
    store = await open_database(database, clock=clock)
    async with staging(store, tenant_id, clock) as staged:
        yield staged
    await store.close()


@pytest.fixture
async def small_stage(tenant_id: str, clock: ManualClock) -> AsyncIterator[Stage]:
    store = await open_database(":memory:", clock=clock)
    async with staging(store, tenant_id, clock) as staged:
        yield staged
    await store.close()

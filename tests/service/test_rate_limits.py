"""Rate limits: they hold over all workers, and the client's address cannot be forged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from tests.conftest import OpenStore
from tests.scripted_agent import ScriptedAgent, make_threadline
from tests.service.conftest import SERVICE
from tests.service.running_service import THREADS, Client, serving
from tests.service.token_clients import client_with, token_for
from threadline.core.errors import SettingsInvalid
from threadline.service.auth.rate_limits import RateLimit
from threadline.service.http.client_addresses import counted_address, read_networks
from threadline.service.http.problems import Problem
from threadline.service.middleware.proxies import ClientAddress
from threadline.settings import RateLimits, Settings
from threadline.testing.clock import ManualClock

both = pytest.mark.parametrize("database", ["file", "postgres"], indirect=True)


@pytest.fixture
async def workers(
    open_store: OpenStore, clock: ManualClock, scripted_agent: ScriptedAgent, tenant_id: str
) -> AsyncIterator[list[Client]]:
    """Two services on one database, with the same token."""
    service = msgspec.structs.replace(SERVICE, authentication=True, rates=RateLimits(per_token=40, per_address=60))
    settings = Settings(tenant=tenant_id, agent="scripted", service=service)
    made = [make_threadline(await open_store(), settings, clock, scripted_agent) for _ in range(2)]
    text = await token_for(made[0], "ada", tenant=tenant_id)
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(serving(each)) for each in made]
        yield [await stack.enter_async_context(client_with(each.url, text)) for each in served]


@both
async def test_two_workers_share_a_tokens_limit(workers: list[Client], clock: ManualClock) -> None:
    answers = await asyncio.gather(*(workers[number % 2].http.get(THREADS) for number in range(50)))
    statuses = [answer.status_code for answer in answers]
    # One of them may be left with a part of its last share, which is two.
    assert 39 <= statuses.count(200) <= 40
    assert statuses.count(429) == 50 - statuses.count(200)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["code"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    clock.advance(60)
    assert [(await each.http.get(THREADS)).status_code for each in workers] == [200, 200]


@both
async def test_two_workers_share_an_addresss_limit_whatever_token_it_sends(workers: list[Client]) -> None:
    presented = [{"authorization": f"Bearer {number}"} for number in range(70)]
    asked = [workers[at % 2].http.get(THREADS, headers=headers) for at, headers in enumerate(presented)]
    statuses = [answer.status_code for answer in await asyncio.gather(*asked)]
    assert 58 <= statuses.count(401) <= 60
    assert statuses.count(429) == 70 - statuses.count(401)
    assert (await workers[0].http.get("/healthz")).status_code == 200
    assert (await workers[1].http.get("/readyz")).status_code == 200


@both
async def test_permits_are_taken_from_the_store_in_batches(
    open_store: OpenStore, clock: ManualClock, tenant_id: str
) -> None:
    store = await open_store()
    asked = 0

    class Counting:
        def scoped(self, scope: Any) -> Any:
            nonlocal asked
            asked += 1
            return store.scoped(scope)

    limit = RateLimit(Counting(), clock, 200)  # type: ignore[arg-type]
    for _ in range(200):
        await limit.take(tenant_id, "token:t")
    assert asked == 20
    for _ in range(100):
        with pytest.raises(Problem):
            await limit.take(tenant_id, "token:t")
    assert asked == 21


async def test_without_authentication_there_is_no_limit(client: Client) -> None:
    for _ in range(3):
        assert (await client.http.get(THREADS)).status_code == 200


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::"),
        ("not an address", "unknown"),
    ],
)
def test_ipv6_addresses_are_counted_by_network(host: str, counted: str) -> None:
    assert counted_address(host) == counted


async def client_of(peer: str, headers: list[tuple[bytes, bytes]], *proxies: str) -> tuple[str, str]:
    """The address and scheme that the app sees."""
    seen: list[tuple[str, str]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["client"][0], scope["scheme"]))

    scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}
    await ClientAddress(app, proxies=read_networks(proxies), max_open=1)(scope, None, None)  # type: ignore[arg-type]
    return seen[0]


def forwarded(*lines: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", line.encode()) for line in lines]


@pytest.mark.parametrize(
    ("peer", "lines", "proxies", "client"),
    [
        ("203.0.113.9", ["192.0.2.1"], [], "203.0.113.9"),
        ("203.0.113.9", ["192.0.2.1"], ["10.0.0.0/8"], "203.0.113.9"),
        ("10.1.1.1", ["192.0.2.1"], ["10.0.0.0/8"], "192.0.2.1"),
        ("10.1.1.1", ["192.0.2.66, 192.0.2.1"], ["10.0.0.0/8"], "192.0.2.1"),
        ("10.1.1.1", ["192.0.2.66", "192.0.2.1, 10.2.2.2"], ["10.0.0.0/8"], "192.0.2.1"),
        ("10.1.1.1", ["192.0.2.1, nonsense"], ["10.0.0.0/8"], "10.1.1.1"),
        ("10.1.1.1", [], ["10.0.0.0/8"], "10.1.1.1"),
        ("10.1.1.1", [""], ["10.0.0.0/8"], "10.1.1.1"),
        ("10.1.1.1", ["10.3.3.3"], ["10.0.0.0/8"], "10.1.1.1"),
        ("::ffff:10.1.1.1", ["2001:db8::1"], ["10.0.0.0/8"], "2001:db8::1"),
        ("::1", ["192.0.2.1"], ["::1"], "192.0.2.1"),
    ],
)
async def test_forwarded_headers_are_believed_only_from_proxies(
    peer: str, lines: list[str], proxies: list[str], client: str
) -> None:
    assert (await client_of(peer, forwarded(*lines), *proxies))[0] == client


async def test_a_proxy_sets_the_scheme() -> None:
    secure = [*forwarded("192.0.2.1"), (b"x-forwarded-proto", b"https")]
    assert await client_of("10.1.1.1", secure, "10.0.0.0/8") == ("192.0.2.1", "https")
    assert await client_of("10.1.1.1", secure) == ("10.1.1.1", "http")
    odd = [(b"x-forwarded-proto", b"javascript")]
    assert (await client_of("10.1.1.1", odd, "10.0.0.0/8"))[1] == "http"


@pytest.mark.parametrize("proxy", ["everyone", "10.0.0.1/8", "300.1.1.1", ""])
def test_an_invalid_proxy_setting_is_refused(proxy: str) -> None:
    with pytest.raises(SettingsInvalid, match="proxies"):
        read_networks([proxy])

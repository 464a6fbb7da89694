"""Numbers and ids that one of the databases cannot hold: refused with 400 on both, before a database sees them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.service.conftest import SERVICE
from tests.service.running_service import CHAT, THREADS, Client, serving
from threadline.bootstrap import open as open_threadline
from threadline.core.ids import new_id
from threadline.settings import Settings
from threadline.testing.postgres import shared_server

NUL = "%00"
HALF = "%ED%A0%80"
OVERFLOWS = (2**31, 2**32, 2**53 + 1, 2**63, 10**30)
REQUESTS: list[tuple[str, str, Any]] = [
    *(("GET", f"{THREADS}?offset={number}", None) for number in OVERFLOWS),
    *(("GET", f"{THREADS}/KEY?first={number}", None) for number in OVERFLOWS),
    *(("GET", f"{THREADS}/KEY?last={number}", None) for number in OVERFLOWS),
    *(("GET", f"{THREADS}/KEY?tail={number}", None) for number in OVERFLOWS),
    *(("GET", f"{THREADS}/KEY/messages?newest={number}", None) for number in OVERFLOWS),
    *(("GET", f"{THREADS}/KEY/messages?turns={number}", None) for number in OVERFLOWS),
    *(("PUT", "/api/v1/ai/saves/here", {"stateKey": "KEY", "at": number}) for number in OVERFLOWS),
    *(("POST", f"{THREADS}/KEY/branch", {"at": number}) for number in OVERFLOWS),
    *(("POST", f"{THREADS}/KEY/rewind", {"at": number}) for number in OVERFLOWS),
    *(("POST", f"{THREADS}/KEY/messages", {"messages": [], "expectedCount": number}) for number in OVERFLOWS),
    *(("POST", f"{THREADS}/KEY/compact", {"budget": number}) for number in OVERFLOWS[1:]),
    *(("POST", f"/api/v1/channels/outbox/{wrong}/requeue", None) for wrong in (NUL, HALF)),
    *(("DELETE", f"/api/v1/tokens/{wrong}", None) for wrong in (NUL, HALF)),
    *(("DELETE", f"/api/v1/channels/links/slack/{wrong}", None) for wrong in (NUL, HALF)),
    *(("GET", f"/api/v1/agents/{wrong}/context", None) for wrong in (NUL, HALF)),
    *(("GET", f"{THREADS}/{wrong}", None) for wrong in (NUL, HALF)),
    *(("GET", f"/api/v1/ai/turns/{wrong}", None) for wrong in (NUL, HALF)),
    *(("GET", f"{THREADS}/KEY/messages/{wrong}", None) for wrong in (NUL, HALF)),
    *(("POST", f"{CHAT}/{wrong}/stop", None) for wrong in (NUL, HALF)),
    *(("GET", f"{THREADS}?q={wrong}", None) for wrong in (NUL,)),
    *(("GET", f"{THREADS}?cursor={wrong}", None) for wrong in (NUL, HALF)),
]


@pytest.fixture(params=["memory", "postgres"])
async def client(request: pytest.FixtureRequest, tenant_id: str) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        database = ":memory:"
        if request.param == "postgres":
            # Not the shared database: deliveries that other tests left there fail in this service and are logged.
            database = await stack.enter_async_context(shared_server().database())
        settings = Settings(database=database, tenant=tenant_id, service=SERVICE)
        threadline = await stack.enter_async_context(open_threadline(settings=settings))
        yield await stack.enter_async_context(serving(threadline))


@pytest.mark.req("R-06")
async def test_what_a_database_cannot_hold_is_refused(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    await client.ask("Hi", key := new_id())
    for method, path, body in REQUESTS:
        given = None if body is None else {name: key if value == "KEY" else value for name, value in body.items()}
        answer = await client.http.request(method, path.replace("KEY", key), json=given)
        assert answer.status_code in (400, 404), (method, path, body, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []

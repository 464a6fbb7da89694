"""Permissions: every route of the app, called by every kind of caller.

The routes are read from the app, so a new one is included automatically. Another user calls each route twice, with
alice's names and with unused names, and must get the same response.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest

from tests.scripted_agent import ScriptedAgent, make_threadline
from tests.service.conftest import SERVICE
from tests.service.running_service import THREADS, Client, error_code, serving
from tests.service.token_clients import client_with, revoked_token, token_for
from threadline.bootstrap import Threadline
from threadline.core.access import make_token
from threadline.core.threads import UserRole, system_scope
from threadline.ports import Store
from threadline.service.app import build_app
from threadline.service.auth.permissions import PERMISSIONS, Permission
from threadline.service.openapi.document import PATH, declared_operations
from threadline.service.openapi.operation import Operation
from threadline.settings import RateLimits, Settings
from threadline.testing.clock import ManualClock
from threadline.testing.conformance.sample_data import SECRET

pytestmark = pytest.mark.parametrize("database", ["memory", "postgres"], indirect=True)

UNUSED = {
    "lisbon": "atlantis",
    "concierge": "doorman",
    "porter": "janitor",
    "before the trip": "after the flood",
    "grace": "linus",
}
"""Names of alice's objects, and unused names to compare with."""
UNAUTHENTICATED = ("no header", "a revoked token", "an expired token", "a made-up token", "an arbitrary text")
OUR_SECRET = "plugh"
"""In an agent that alice's tenant shares."""
LINES = b'{"type":"thread","title":"in"}\n'


class Question(NamedTuple):
    """A request to one route, with its declared example as its body."""

    method: str
    url: str
    operation: Operation
    body: bytes | None
    media_type: str

    def renamed(self, names: dict[str, str]) -> Question:
        url, body = self.url, self.body or b""
        for old, new in names.items():
            url, body = url.replace(old, new), body.replace(old.encode(), new.encode())
        return self._replace(url=url, body=body if self.body is not None else None)

    async def ask(self, client: Client) -> httpx2.Response:
        headers = {} if self.body is None else {"content-type": self.media_type}
        return await client.http.request(self.method, self.url, content=self.body, headers=headers)

    @property
    def permission(self) -> Permission:
        return PERMISSIONS[self.operation.id]

    @property
    def role(self) -> UserRole | None:
        """The role that a caller on this machine needs."""
        return None if self.permission.is_open_locally else self.permission.role


def questions(threadline: Threadline) -> list[Question]:
    found = []
    for template, method, operation in declared_operations(build_app(threadline).routes):
        url = template
        for name, value in PATH.items():
            said = operation.path.get(name, value.example)
            url = url.replace(f"{{{name}:path}}", said).replace(f"{{{name}}}", said)
        examples = list(operation.body.examples.values()) if operation.body else []
        body = json.dumps(examples[0]).encode() if examples else LINES if operation.body else None
        media_type = operation.body.media_types[0] if operation.body else ""
        found.append(Question(method.upper(), url, operation, body, media_type))
    # What deletes comes last, so that the rest has something to ask for.
    return sorted(found, key=lambda question: question.method == "DELETE")


@pytest.fixture
def settings(tenant_id: str) -> Settings:
    # Without limits: there are more routes, times callers, than requests that one token may send in a minute.
    unlimited = RateLimits(per_token=0, per_acting_token=0, per_address=0)
    service = msgspec.structs.replace(SERVICE, authentication=True, rates=unlimited)
    return Settings(agent="scripted", tenant=tenant_id, service=service)


@pytest.fixture
def threadline(store: Store, settings: Settings, clock: ManualClock, scripted_agent: ScriptedAgent) -> Threadline:
    return make_threadline(store, settings, clock, scripted_agent)


@pytest.fixture
async def callers(threadline: Threadline, clock: ManualClock, tenant_id: str) -> AsyncIterator[dict[str, Client]]:
    tokens = {
        "alice": await token_for(threadline, "alice", tenant=tenant_id),
        "a viewer": await token_for(threadline, "alice", "viewer", tenant=tenant_id),
        "another user": await token_for(threadline, "bob", tenant=tenant_id),
        "an admin": await token_for(threadline, "root", "admin", tenant=tenant_id),
        "another tenant": await token_for(threadline, "alice", "admin", tenant=f"{tenant_id}-abroad"),
        "a revoked token": await revoked_token(threadline, "alice"),
        "an expired token": await token_for(threadline, "alice", "admin", tenant=tenant_id, lasts=1),
        "a made-up token": make_token(tenant_id),
        "an arbitrary text": "hunter2",
        "no header": None,
    }
    clock.advance(2)
    async with serving(threadline) as anyone, AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(client_with(anyone.url, text)) for name, text in tokens.items()}


@pytest.fixture
async def alices(callers: dict[str, Client], scripted_agent: ScriptedAgent) -> Client:
    """Alice has a thread, a saved point and a pinned text; her tenant has an agent."""
    alice, admin = callers["alice"], callers["an admin"]
    scripted_agent.lines = [f"{SECRET} is the word."]
    await alice.ask(f"{SECRET}?", "lisbon")
    await alice.ask("And again?", "lisbon")
    put = await alice.http.put("/api/v1/ai/saves/before the trip", json={"stateKey": "lisbon"})
    pin = await alice.http.post("/api/v1/agents/rehearsal/context", json={"context": SECRET})
    made = await admin.http.post(
        "/api/v1/agents", json={"id": "concierge", "provider": "rehearsal", "name": OUR_SECRET}
    )
    assert (put.status_code, pin.status_code, made.status_code) == (200, 200, 201)
    scripted_agent.lines = ["Hello."]
    return alice


async def view(alice: Client) -> list[Any]:
    urls = (f"{THREADS}/lisbon", f"{THREADS}/lisbon/timelines", THREADS, "/api/v1/ai/saves", "/api/v1/agents")
    return [(await alice.http.get(url)).json() for url in (*urls, "/api/v1/agents/rehearsal/context")]


async def counts(store: Store, tenant_id: str) -> dict[str, int]:
    return await store.scoped(system_scope(tenant_id)).row_counts()


@pytest.mark.req("S0-12", "SX-04")
async def test_unauthenticated_callers_get_401_from_every_route(
    threadline: Threadline, callers: dict[str, Client], alices: Client, store: Store, tenant_id: str
) -> None:
    before = await counts(store, tenant_id)
    for who, question in itertools.product(UNAUTHENTICATED, questions(threadline)):
        answer = await question.ask(callers[who])
        if question.role is None:
            # A webhook asks for its platform's signature instead, a sign-in for a link.
            refusals = (401, 404) if "/webhook" in question.url else (400,) if "/sign-in/" in question.url else ()
            assert answer.is_success or answer.status_code in refusals, (question.url, answer.text)
            continue
        assert answer.status_code == 401, (who, question.method, question.url, answer.text)
        assert error_code(answer) == ("unauthenticated" if who == "no header" else "invalid_token")
        assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert await counts(store, tenant_id) == before


@pytest.mark.req("SX-04")
@pytest.mark.parametrize(("who", "may"), [("a viewer", ("viewer",)), ("alice", ("viewer", "member"))])
async def test_a_role_allows_exactly_what_the_table_says(
    threadline: Threadline, callers: dict[str, Client], alices: Client, who: str, may: tuple[str, ...]
) -> None:
    for question in questions(threadline):
        before = None if question.role in (None, *may) else await view(alices)
        answer = await question.ask(callers[who])
        if before is None:
            assert answer.status_code not in (401, 403), (question.method, question.url, answer.text)
        else:
            assert (answer.status_code, error_code(answer)) == (403, "role_refused"), (question.url, answer.text)
            assert await view(alices) == before


@pytest.mark.parametrize("url", ["/api/v1/tokens", "/api/v1/agents"])
async def test_the_role_is_checked_before_the_body_is_read(callers: dict[str, Client], url: str) -> None:
    """A refused caller learns nothing about the validity of the body."""
    for who, status in (("no header", 401), ("a viewer", 403), ("alice", 403), ("an admin", 400)):
        answer = await callers[who].http.post(url, content=b"{", headers={"content-type": "application/json"})
        assert answer.status_code == status, who


async def test_an_administrator_may_call_every_route(
    threadline: Threadline, callers: dict[str, Client], alices: Client
) -> None:
    for question in questions(threadline):
        answer = await question.ask(callers["an admin"])
        assert answer.status_code not in (401, 403), (question.method, question.url, answer.text)


def test_only_get_routes_are_open_to_viewers(threadline: Threadline) -> None:
    """A writing route with the role viewer would be a mistake in the table, except where it ends their own access."""
    of_oneself = ("signOut", "revokeSignIn", "revokeSignIns")
    for question in questions(threadline):
        # A call over MCP may read: the tools that write check the role themselves (tests/mcp_server).
        if question.method != "GET" and question.operation.id not in (*of_oneself, "callMcp"):
            assert question.role in ("member", "admin", None), question.url


@pytest.mark.req("S0-12", "S1-05", "SX-04")
@pytest.mark.parametrize("who", ["another user", "another tenant"])
async def test_foreign_objects_and_missing_objects_get_the_same_response(
    threadline: Threadline, callers: dict[str, Client], alices: Client, who: str
) -> None:
    before = await view(alices)
    # An agent is the whole tenant's, so a neighbour shares it.
    names = {theirs: unused for theirs, unused in UNUSED.items() if (who, theirs) != ("another user", "concierge")}
    for question in questions(threadline):
        theirs = await question.ask(callers[who])
        unused = await question.renamed(names).ask(callers[who])
        for word in (SECRET,) if who == "another user" else (SECRET, OUR_SECRET):
            assert word not in theirs.text, (question.url, theirs.text)
        assert theirs.status_code == unused.status_code, (question.method, question.url, theirs.text, unused.text)
        if theirs.headers.get("content-type") == "application/problem+json":
            told = theirs.text
            for old, new in names.items():
                told = told.replace(old, new)
            assert told == unused.text, question.url
    assert await view(alices) == before

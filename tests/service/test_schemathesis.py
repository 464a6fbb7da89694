"""Schemathesis reads the OpenAPI document and tries to prove it wrong: each operation alone, then in chains by links.

It sends what the document allows and what it does not, and looks at every answer: never a 5xx, only statuses, types and
shapes that are described, nothing taken that should be refused, nothing found again after it was deleted. The seed is
fixed, so a run is the same each time; the slow one tries more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema

from tests.service.running_service import THREADS, serving
from threadline.bootstrap import open as open_threadline
from threadline.settings import ServiceSettings, Settings
from threadline.testing.postgres import shared_server

SERVICE = ServiceSettings(heartbeat_seconds=5, recovery_seconds=60, grace_seconds=1)
# A key under which nothing was said has an empty history, also after a deletion; deleting twice is fine.
SAME_AFTER_DELETION = ("GET /api/v1/ai/threads/{stateKey}", "DELETE /api/v1/ai/threads/{stateKey}")
# A new agent has no pinned context.
NOT_CREATED_WITH_IT = "GET /api/v1/agents/{agentId}/context"
REFUSED = [400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 431]


def configuration(seed: int, examples: int, steps: int) -> SchemathesisConfig:
    return SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "generation": {"max-examples": examples, "database": "none", "deterministic": True},
            "phases": {"stateful": {"max-steps": steps}},
            "checks": {
                "not_a_server_error": {"enabled": True},
                "negative_data_rejection": {"expected-statuses": REFUSED},
                # Some rules are no schema's: a cursor was issued here, a name can be seen, a file is an export.
                "positive_data_acceptance": {"enabled": False},
            },
            "operations": [
                {"include-name": name, "checks": {"use_after_free": {"enabled": False}}} for name in SAME_AFTER_DELETION
            ]
            + [{"include-name": NOT_CREATED_WITH_IT, "checks": {"ensure_resource_availability": {"enabled": False}}}],
        }
    )


def failures(url: str, config: SchemathesisConfig) -> Iterator[str]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            yield repr(event)
        if isinstance(event, events.ScenarioFinished):
            for check in chain.from_iterable(event.recorder.checks.values()):
                if check.status is Status.FAILURE and (found := check.failure_info) is not None:
                    wrong = found.failure
                    yield f"{wrong.operation}: {wrong.title}\n{wrong.message}\n{found.code_sample}"


async def attack(seed: int, examples: int, steps: int, database: str = ":memory:") -> str:
    """The failures that schemathesis finds on a fresh service with some data, as one text: none is cut short."""
    settings = Settings(database=database, service=SERVICE)
    async with open_threadline(settings=settings) as threadline, serving(threadline) as client:
        await client.ask("What is there to see?", "lisbon")
        await client.http.put("/api/v1/ai/saves/before the trip", json={"stateKey": "lisbon"})
        await client.http.post("/api/v1/agents", json={"id": "concierge", "provider": "rehearsal"})
        config = configuration(seed, examples, steps)
        found = await asyncio.to_thread(lambda: list(failures(client.url, config)))
        assert (await client.http.get(THREADS)).status_code == 200
        return "\n\n".join(found)


async def test_generated_requests_match_the_document() -> None:
    found = await attack(seed=20261115, examples=4, steps=5)
    assert not found, found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_many_generated_requests_match_the_document(seed: int) -> None:
    found = await attack(seed, examples=100, steps=10)
    assert not found, found


@pytest.mark.slow
@pytest.mark.req("R-06")
async def test_many_generated_requests_match_the_document_on_postgresql() -> None:
    """`test_store_edges` is the quick part of this: the values that a stricter database refuses."""
    found = await attack(7, examples=50, steps=10, database=await shared_server().create_database())
    assert not found, found

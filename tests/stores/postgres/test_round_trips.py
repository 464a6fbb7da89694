"""The number of round trips to the database per operation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from asyncpg.connection import LoggedQuery

from threadline.bootstrap import Threadline
from threadline.core.events import Event, TextDelta
from threadline.core.model_texts import TitleSettings
from threadline.core.prompts import Prompt
from threadline.core.timeouts import Timeouts
from threadline.ports import AgentServices
from threadline.settings import Settings
from threadline.stores.postgres import change_watch, search_indexer
from threadline.stores.postgres.pool import Address
from threadline.stores.postgres.store import PostgresStore
from threadline.testing.clock import ManualClock
from threadline.turns.leases import Timing

NO_TIMERS = Timing(flush_seconds=60, wait_seconds=60)
"""So long that no timer fires during a test, however busy the machine is."""


class Brief:
    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        yield TextDelta("Not far.")


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement on any connection, except LISTEN, which a watch sends at an unpredictable moment."""
    sent: list[str] = []
    connect = Address.connect

    def note(record: LoggedQuery) -> None:
        if not record.query.startswith("LISTEN"):
            sent.append(record.query)

    async def counting(self: Address, timeouts: Timeouts, *, unbounded: bool = False) -> asyncpg.Connection:
        connection = await connect(self, timeouts, unbounded=unbounded)
        connection.add_query_logger(note)
        return connection

    monkeypatch.setattr(Address, "connect", counting)
    # No background work: it would send statements, and a second connection, which asks the server for its types.
    monkeypatch.setattr(search_indexer, "IDLE_SECONDS", 3_600)
    monkeypatch.setattr(change_watch, "BATCH_SECONDS", 3_600)
    return sent


async def test_a_turn_takes_six_round_trips_and_its_reply_one(
    statements: list[str], dsn: str, clock: ManualClock
) -> None:
    store = await PostgresStore.open(dsn, clock=clock)
    settings = Settings(agent="brief", titles=TitleSettings(by_model=False))
    opened = Threadline(store, settings, clock, agents={"brief": Brief()}, timing=NO_TIMERS)
    thread = await opened.as_user().create_thread()
    await thread.ask("The first one makes connections")
    # asyncpg logs a statement in the next iteration of the event loop.
    await asyncio.sleep(0)
    statements.clear()
    assert (await thread.ask("Is it far?")).text == "Not far."
    await asyncio.sleep(0)
    # The request with its turn and lease; the agent, the history, the snapshot, the summary; the end; the reply.
    assert len(statements) == 7, statements
    assert "accept_turn" in statements[0]
    assert "finish_turn" in statements[5]
    await opened.close()


async def test_an_append_takes_one_round_trip(statements: list[str], dsn: str, clock: ManualClock) -> None:
    store = await PostgresStore.open(dsn, clock=clock)
    opened = Threadline(store, Settings(), clock)
    thread = await opened.as_user().create_thread()
    await thread.append("The first one asks the server for its types")
    await asyncio.sleep(0)
    statements.clear()
    at = clock.advance()
    appended = await thread.append("Is it far?", "Not far.")
    await asyncio.sleep(0)
    assert len(statements) == 1, statements
    assert appended.message_count == 3
    info = thread.info
    assert (info.message_count, info.updated_at) == (3, at)
    assert info == await thread.refresh()
    await opened.close()

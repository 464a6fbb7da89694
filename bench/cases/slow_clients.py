"""Clients that hold a connection and never finish their request, and how long others wait beside them."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from bench.arena import Arena
from bench.budgets import OURS, SLOW_CLIENTS, SLOW_CLIENTS_P99
from bench.contenders.ours import place_for_ours
from bench.http_client import Connection, request
from bench.http_servers import ServerOrder, ServerProcess
from bench.measure import Samples
from bench.results import Row

HALF = b"POST /api/v1/ai/chat HTTP/1.1\r\nhost: localhost\r\nx-more:"
LIST = request("GET", "/api/v1/ai/threads?limit=1")


async def slow_clients(arena: Arena) -> list[Row]:
    """1,000 half-open connections, renewed as the service ends them, and the times of a client that lists threads on a
    new connection for each request: from the first half-open connection until some of them have timed out."""
    count, requests = arena.sized((1_000, 3_000), (200, 300))
    async with ServerProcess(ServerOrder("ours", await place_for_ours(arena))) as server:
        holding = [asyncio.create_task(_hold(server.address)) for _ in range(count)]
        taken = [await _ask(server.address) for _ in range(requests)]
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    samples, at = Samples([taken]), f"{count:,} half-open connections"
    return [
        Row(SLOW_CLIENTS.name, OURS, "ms", samples.median * 1e3, at=at, samples=len(samples)),
        Row(SLOW_CLIENTS_P99.name, OURS, "ms", samples.p99 * 1e3, at=at, samples=len(samples)),
    ]


async def _hold(address: str) -> None:
    """A client that never finishes its request, and connects again when it is disconnected."""
    place = urlsplit(address)
    while True:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            writer.write(HALF)
            await reader.read()
        except ConnectionError:
            # Closed for a newer one: the next attempt.
            pass
        finally:
            writer.close()


async def _ask(address: str) -> float:
    started = time.monotonic()
    connection = await Connection.open(address)
    await connection.ask(LIST)
    await connection.close()
    # As a user would: without a pause this client alone would use the whole server.
    taken = time.monotonic() - started
    await asyncio.sleep(0.005)
    return taken

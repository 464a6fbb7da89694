"""The service over HTTP: requests in a second and the slowest of a hundred, beside a bare app that does the same I/O.

Both are served by uvicorn in a process of their own, on the same kind of database, and are asked by the same client in
turns. The bare app is one process; Threadline is one process, and `threadline serve --workers 2` beside it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

import threadline
from bench.arena import Arena
from bench.budgets import (
    HTTP_CHAT,
    HTTP_CHAT_P99,
    HTTP_LIST,
    HTTP_LIST_P99,
    HTTP_RAW,
    HTTP_READ,
    HTTP_READ_P99,
    HTTP_RESPONSE,
    HTTP_RESPONSE_P99,
    OURS,
    Measure,
)
from bench.contenders.ours import new_messages, place_for_ours
from bench.http_client import Connection, Load, load, request
from bench.http_servers import ServerOrder, ServerProcess, open_tables
from bench.measure import Samples
from bench.results import Row
from bench.workload import Turn, turns
from threadline.core.threads import NewThread

BARE = "bare Starlette and the driver"
TWO_WORKERS = "Threadline, 2 workers"
THREADS = "/api/v1/ai/threads"
CONNECTIONS = 8
QUESTION = "long 100"


async def requests(arena: Arena) -> list[Row]:
    """Lists of 50 threads, reads of a thread of 100 messages, chats and responses of the rehearsal agent, over 8
    connections."""
    rows: list[Row] = []
    threads = {f"thread-{number}": turns(5) for number in range(arena.sized(1_000, 100))}
    threads["read"] = turns(50)
    async with _both(arena, threads) as servers:
        numbers = itertools.count()
        kinds: list[tuple[Measure, Measure, Callable[[], bytes], int]] = [
            (HTTP_LIST, HTTP_LIST_P99, lambda: request("GET", THREADS), arena.sized(800, 160)),
            (HTTP_READ, HTTP_READ_P99, lambda: request("GET", f"{THREADS}/read"), arena.sized(800, 160)),
            (HTTP_CHAT, HTTP_CHAT_P99, lambda: _chat(f"chat-{next(numbers)}"), arena.sized(400, 80)),
            (HTTP_RESPONSE, HTTP_RESPONSE_P99, _response, arena.sized(400, 80)),
        ]
        for work, slowest, asking, count in kinds:
            taken = await _in_turns(servers, asking, count, rounds=arena.sized(10, 3))
            rows += _rows(work, slowest, taken)
    return rows


async def raw(arena: Arena) -> list[Row]:
    """A thread of 10,000 messages read whole over HTTP: the stored bytes, joined and sent."""
    length = arena.sized(5_000, 1_000)
    async with _both(arena, {"read": turns(length)}) as servers:
        taken: dict[str, list[list[float]]] = {name: [] for name in servers}
        for _ in range(arena.sized(10, 4)):
            for name, address in servers.items():
                found = await load(address, lambda: request("GET", f"{THREADS}/read"), connections=1, requests=2)
                taken[name].append(found.latencies)
    samples = {name: Samples(rounds) for name, rounds in taken.items()}
    return [
        Row(
            HTTP_RAW.name,
            name,
            "ms",
            each.median * 1e3,
            at=f"{2 * length:,} messages",
            best=each.best * 1e3,
            p99=each.p99 * 1e3,
            samples=len(each),
            ratio=each.ratio_to(samples[BARE]),
            best_ratio=each.best / samples[BARE].best,
            against=BARE,
        )
        for name, each in samples.items()
    ]


@asynccontextmanager
async def _both(arena: Arena, threads: dict[str, list[Turn]]) -> AsyncIterator[dict[str, str]]:
    """The address of each server, over databases that hold these threads."""
    ours, bare = await place_for_ours(arena), await _place_for_bare(arena)
    await _fill(ours, threads)
    tables = await open_tables(bare, create=True)
    await tables.fill(threads)
    await tables.close()
    await arena.settle()
    async with ServerProcess(ServerOrder("ours", ours)) as our_server:
        deltas = await _said(our_server.address)
        async with (
            ServerProcess(ServerOrder("bare", bare, deltas)) as bare_server,
            ServerProcess(ServerOrder("workers", ours)) as two,
        ):
            yield {BARE: bare_server.address, OURS: our_server.address, TWO_WORKERS: two.address}


async def _place_for_bare(arena: Arena) -> str:
    return str(arena.file("bare")) if arena.backend == "sqlite" else await arena.database()


async def _fill(place: str, threads: dict[str, list[Turn]]) -> None:
    async with threadline.open(place) as opened:
        mine = opened.threads(threadline.Scope())
        for key, said in threads.items():
            thread = await mine.create(NewThread(state_key=key, title=said[0].question[:100]))
            messages = [message for turn in said for message in new_messages(turn)]
            for first in range(0, len(messages), 5_000):
                await mine.append(thread.id, messages[first : first + 5_000])
        await opened.store.index_pending()


async def _said(address: str) -> list[str]:
    """The words of the rehearsal agent, piece by piece, for the bare app to repeat."""
    connection = await Connection.open(address)
    body = await connection.ask(_chat("first"))
    await connection.close()
    chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    return [chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta"]


def _chat(key: str) -> bytes:
    message = {"role": "user", "parts": [{"type": "text", "text": QUESTION}]}
    return request("POST", "/api/v1/ai/chat", msgspec.json.encode({"id": key, "message": message}))


def _response() -> bytes:
    return request("POST", "/v1/responses", msgspec.json.encode({"model": "rehearsal", "input": QUESTION}))


async def _in_turns(
    servers: dict[str, str], asking: Callable[[], bytes], count: int, *, rounds: int
) -> dict[str, list[Load]]:
    taken: dict[str, list[Load]] = {name: [] for name in servers}
    for number in range(-1, rounds):
        for name, address in servers.items():
            found = await load(address, asking, connections=CONNECTIONS, requests=count)
            if number >= 0:
                taken[name].append(found)
    return taken


def _rows(work: Measure, slowest: Measure, taken: dict[str, list[Load]]) -> list[Row]:
    # A rate is the inverse of a time, so rounds are compared as times and the ratio is turned round.
    times = {name: Samples([[1 / found.rate] for found in loads]) for name, loads in taken.items()}
    rows: list[Row] = []
    for name, loads in taken.items():
        ratio = 1 / times[name].ratio_to(times[BARE])
        rate, best = 1 / times[name].median, 1 / times[name].best
        rows.append(Row(work.name, name, "requests/s", rate, best=best, ratio=ratio, against=BARE, samples=len(loads)))
        latencies = sorted(latency for found in loads for latency in found.latencies)
        p99 = latencies[math.ceil(0.99 * len(latencies)) - 1] * 1e3
        rows.append(Row(slowest.name, name, "ms", p99, samples=len(latencies)))
    return rows

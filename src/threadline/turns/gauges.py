"""Gauges of a running process: turns that run here, readers of streams, use of the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from threadline.observability.metrics import Metrics, Reading
from threadline.ports import Store
from threadline.turns.runner import Runner
from threadline.turns.streams import Streams


def register_gauges(metrics: Metrics, store: Store, runner: Runner, streams: Streams) -> None:
    metrics.gauge(
        "threadline_turns_running", "Turns that this process runs or waits to run.", read=_plain(lambda: runner.running)
    )
    metrics.gauge(
        "threadline_stream_subscribers",
        "Readers of turns' streams in this process.",
        read=_plain(lambda: streams.readers),
    )

    async def channel_wait() -> Reading:
        return {(): runner.channel_wait_seconds}

    metrics.gauge(
        "threadline_channel_wait_seconds",
        "How long the oldest turn of a messaging platform has waited for its next step in this process; in a process"
        " that runs no turns, how long the oldest one has waited for a worker.",
        read=channel_wait,
    )

    async def load() -> Reading:
        found = store.pool_stats()
        return {("open",): found.open, ("in_use",): found.in_use, ("waiting",): found.waiting}

    metrics.gauge(
        "threadline_database_connections",
        "Connections to the database that are open and in use, and requests that wait for one.",
        ("state",),
        read=load,
    )


def _plain(read: Callable[[], int]) -> Callable[[], Awaitable[Reading]]:
    async def reading() -> Reading:
        return {(): read()}

    return reading

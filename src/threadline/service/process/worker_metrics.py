"""One scrape for all workers: a worker that is scraped asks the others and answers for all of them.

Each worker listens on a socket file in a folder that the parent process made for them, which only this user can enter.
Who connects gets the worker's metrics as JSON. Every sample has the label `worker`, so that the counters of a worker
that restarts do not decrease those of another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from threadline.observability.metrics import Family, Metrics

log = logging.getLogger("threadline.service")

# A worker whose event loop is busy for longer is left out of this scrape; scrapers themselves wait ten seconds.
_SECONDS = 2.0
_decoder = msgspec.json.Decoder(list[Family])


@asynccontextmanager
async def shared_metrics(metrics: Metrics, folder: Path, worker: int) -> AsyncIterator[None]:
    """While it is open, a scrape of any worker in the folder has the metrics of all of them."""
    metrics.add_common_label("worker", str(worker))
    own = folder / str(worker)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(msgspec.json.encode(await metrics.own_families()))
        await writer.drain()
        writer.close()

    async def read_others() -> list[Family]:
        # A folder of a few entries in memory or in the cache: quicker than a thread.
        others = [path for path in sorted(folder.iterdir()) if path != own]  # noqa: ASYNC240
        found = await asyncio.gather(*(_read(path) for path in others))
        return [family for families in found for family in families]

    # What a killed worker of the same number left would be in the way.
    own.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(answer, own)
    metrics.add_processes(read_others)
    try:
        yield
    finally:
        server.close()
        own.unlink(missing_ok=True)


async def _read(path: Path) -> list[Family]:
    """Nothing of a worker that has just ended, or that does not answer in time."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return _decoder.decode(await reader.read())
            finally:
                writer.close()
    except (OSError, TimeoutError, msgspec.DecodeError) as exc:
        log.warning("metrics of a worker not read", extra={"worker": path.name, "reason": type(exc).__name__})
        return []

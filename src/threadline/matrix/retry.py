"""Retries of the bot: the homeserver, the database or the service being down only delays what it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from threadline.core.errors import ServiceUnavailable, StoreFailed
from threadline.matrix.homeserver import HomeserverAway

log = logging.getLogger("threadline.matrix")

T = TypeVar("T")

# Short at first, because most outages are restarts; then long enough not to add load to a server that is starting.
_PAUSES = (0.2, 1.0, 3.0, 10.0)


async def retry_until_up(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats the call while the homeserver, the database or the service is down. Other errors are raised."""
    attempt = 0
    while True:
        try:
            return await call()
        except (StoreFailed, ServiceUnavailable, HomeserverAway) as exc:
            log.warning("waiting: %s", exc)
            await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1

"""Rate limits per token and per address that hold over all workers.

A worker takes permits from the store, a twentieth of the limit at a time, and spends them without asking again. So no
minute sees more than the limit, whatever the number of workers, and the store is written once for many requests. The
price: permits that an idle worker holds are lost to the others, at most a twentieth of the limit each.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from threadline.core.errors import StoreFailed
from threadline.core.threads import system_scope
from threadline.ports import Clock, Store
from threadline.service.http.client_addresses import client_host, counted_address
from threadline.service.http.problems import Problem
from threadline.service.http.requests import WEBHOOK_PATH

WINDOW = dt.timedelta(minutes=1)
# Permits are taken in twentieths of the limit.
_SHARES = 20
# Bounds the memory when many addresses send requests.
_MAX_HELD = 20_000
# Rare: the rows are small, and only addresses add new ones.
_CLEANUP_SECONDS = 300.0
_WINDOW_LIFETIME = dt.timedelta(hours=1)
_UNLIMITED = frozenset(("/healthz", "/readyz"))


class _Permits:
    """What this process may still spend of one limit in one window. `lock` is for taking more from the store."""

    __slots__ = ("is_used_up", "left", "lock", "window")

    def __init__(self, window: dt.datetime) -> None:
        self.window = window
        self.left = 0
        self.is_used_up = False
        # Held while a batch of permits is fetched.
        self.lock = asyncio.Lock()


class RateLimit:
    def __init__(self, store: Store, clock: Clock, per_minute: int) -> None:
        self._store = store
        self._clock = clock
        self._limit = per_minute
        self._batch = max(1, per_minute // _SHARES)
        self._held: dict[tuple[str, str], _Permits] = {}

    async def take(self, tenant_id: str, key: str) -> None:
        """Spends one request. A Problem with status 429 says when the next window starts."""
        held = self._permits(tenant_id, key)
        if held.left == 0 and not held.is_used_up:
            # One at a time, so that concurrent requests do not each take a batch.
            async with held.lock:
                if held.left == 0 and not held.is_used_up:
                    await self._fetch(tenant_id, key, held)
        if held.left == 0:
            raise self._limited(held.window)
        held.left -= 1

    def _permits(self, tenant_id: str, key: str) -> _Permits:
        window = window_of(self._clock.now())
        held = self._held.get((tenant_id, key))
        if held is None or held.window != window:
            if len(self._held) >= _MAX_HELD:
                self._held = {each_key: each for each_key, each in self._held.items() if each.window == window}
            if len(self._held) >= _MAX_HELD:
                # Dropped permits only cost an earlier read of the store.
                self._held.clear()
            held = self._held[tenant_id, key] = _Permits(window)
        return held

    async def _fetch(self, tenant_id: str, key: str, held: _Permits) -> None:
        session = self._store.scoped(system_scope(tenant_id))
        held.left = await session.take_permits(key, window=held.window, wanted=self._batch, limit=self._limit)
        held.is_used_up = held.left == 0

    def _limited(self, window: dt.datetime) -> Problem:
        wait = max(1, round((window + WINDOW - self._clock.now()).total_seconds()))
        detail = f"more than {self._limit} requests in this minute: try again in {wait} seconds"
        return Problem(429, "rate_limited", detail, {"Retry-After": str(wait)})


def window_of(now: dt.datetime) -> dt.datetime:
    return now.replace(second=0, microsecond=0)


async def delete_old_windows(store: Store, clock: Clock, tenant_id: str) -> None:
    """Runs until cancelled. Deletes the rows of addresses that sent nothing for an hour; tokens keep one row each."""
    while True:
        await asyncio.sleep(_CLEANUP_SECONDS)
        # The next run tries again; leftover rows do no harm.
        with suppress(StoreFailed):
            await store.scoped(system_scope(tenant_id)).drop_permits(before=clock.now() - _WINDOW_LIFETIME)


class AddressLimit:
    """Middleware that counts every request against its address before it is authenticated. Addresses are counted in the
    tenant of the settings, because the tenant of the request is not known yet."""

    def __init__(self, app: ASGIApp, *, limit: RateLimit | None, tenant_id: str) -> None:
        self._app = app
        self._limit = limit
        self._tenant_id = tenant_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._limit is not None and scope["type"] == "http" and not _is_unlimited(scope["path"]):
            try:
                # Without the database nothing can be counted; routes that need it fail by themselves.
                with suppress(StoreFailed):
                    await self._limit.take(self._tenant_id, f"address:{counted_address(client_host(scope))}")
            except Problem as problem:
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_unlimited(path: str) -> bool:
    # A platform sends the messages of all its users from a few addresses, signs each delivery, and drops refused ones.
    return path in _UNLIMITED or WEBHOOK_PATH.fullmatch(path) is not None

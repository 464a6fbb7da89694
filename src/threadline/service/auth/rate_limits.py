"""Rate limits that hold over all workers: so many requests a minute for each token, and for each address.

What may be asked in a minute is given out by the store, a twentieth of the limit at a time; a worker that holds some
asks nobody. So no minute sees more than the limit, whatever the number of workers, and the store is written to once for
twenty requests or more. The price: what an idle worker holds is lost to the others, at most a twentieth each.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import re
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from threadline.core.errors import StoreFailed
from threadline.core.threads import system_scope
from threadline.ports import Clock, Store
from threadline.service.problems import Problem

WINDOW = dt.timedelta(minutes=1)
_SHARE = 20
_HELD_MOST = 20_000
_FORGOTTEN_SECONDS = 300.0
_FORGOTTEN_AFTER = dt.timedelta(hours=1)
_UNLIMITED = frozenset(("/healthz", "/readyz"))
# A platform speaks for all its users from a few addresses, proves who it is with each delivery, and gives up on what is
# refused.
_WEBHOOK = re.compile(r"/api/v1/tenants/[^/]+/channels/[^/]+/webhook")


class _Held:
    """What this process may still spend of one limit in one window."""

    __slots__ = ("left", "line", "used_up", "window")

    def __init__(self, window: dt.datetime) -> None:
        self.window = window
        self.left = 0
        self.used_up = False
        self.line = asyncio.Lock()


class RateLimit:
    def __init__(self, store: Store, clock: Clock, per_minute: int) -> None:
        self._store = store
        self._clock = clock
        self._limit = per_minute
        self._wanted = max(1, per_minute // _SHARE)
        self._held: dict[tuple[str, str], _Held] = {}

    async def take(self, tenant_id: str, key: str) -> None:
        """Spends one request. A Problem with status 429 says when there will be more."""
        held = self._holding(tenant_id, key)
        if held.left == 0 and not held.used_up:
            # In line, so that those who come at once do not each take a share.
            async with held.line:
                if held.left == 0 and not held.used_up:
                    await self._fetch(tenant_id, key, held)
        if held.left == 0:
            raise self._refusal(held.window)
        held.left -= 1

    def _holding(self, tenant_id: str, key: str) -> _Held:
        window = window_of(self._clock.now())
        held = self._held.get((tenant_id, key))
        if held is None or held.window != window:
            if len(self._held) >= _HELD_MOST:
                self._held = {place: each for place, each in self._held.items() if each.window == window}
            if len(self._held) >= _HELD_MOST:
                # Forgetting what is held only asks the store again sooner.
                self._held.clear()
            held = self._held[tenant_id, key] = _Held(window)
        return held

    async def _fetch(self, tenant_id: str, key: str, held: _Held) -> None:
        house = self._store.scoped(system_scope(tenant_id))
        held.left = await house.take_permits(key, window=held.window, wanted=self._wanted, limit=self._limit)
        held.used_up = held.left == 0

    def _refusal(self, window: dt.datetime) -> Problem:
        wait = max(1, round((window + WINDOW - self._clock.now()).total_seconds()))
        detail = f"At most {self._limit} requests a minute: wait {wait} seconds."
        return Problem(429, "rate_limited", detail, {"Retry-After": str(wait)})


def window_of(now: dt.datetime) -> dt.datetime:
    return now.replace(second=0, microsecond=0)


async def forget_windows(store: Store, clock: Clock, tenant_id: str) -> None:
    """Now and then, as long as this runs: addresses that were not seen for a while. Tokens keep their one row each."""
    while True:
        await asyncio.sleep(_FORGOTTEN_SECONDS)
        with suppress(StoreFailed):
            await store.scoped(system_scope(tenant_id)).drop_permits(before=clock.now() - _FORGOTTEN_AFTER)


class AddressLimit:
    """Counts every request against its address, before anyone looks at it. Addresses are counted in the tenant of the
    settings: nobody knows yet which one a request is for."""

    def __init__(self, app: ASGIApp, *, limit: RateLimit | None, tenant_id: str) -> None:
        self._app = app
        self._limit = limit
        self._tenant_id = tenant_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._limit is not None and scope["type"] == "http" and not _is_unlimited(scope["path"]):
            try:
                # While the database is away nothing can be counted; what needs it says so itself.
                with suppress(StoreFailed):
                    await self._limit.take(self._tenant_id, f"address:{counted_address(scope)}")
            except Problem as problem:
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_unlimited(path: str) -> bool:
    return path in _UNLIMITED or _WEBHOOK.fullmatch(path) is not None


def counted_address(scope: Scope) -> str:
    """An IPv6 customer has a whole network, so the network is what counts."""
    host = (scope.get("client") or ("unknown", 0))[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "unknown"
    if address.version == 6:
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(address)

"""For whoever operates the service: is it alive, is it ready, what is it doing.

`/healthz` says that the process answers; `/readyz` that it can also reach its database and that the schema is right.
Neither needs a token, so neither says more than yes or no. `/metrics` is for this machine and for administrators: a
scraper beside the service needs no token, one elsewhere has an administrator's.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ApiStruct
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.errors import StoreFailed, StoreUnavailable
from threadline.service.auth.callers import LOCAL_HOSTS, WhoAsks
from threadline.service.exposition import CONTENT_TYPE, exposition
from threadline.service.middleware.headers import host_name
from threadline.service.operation import ResponseSpec, operation
from threadline.service.responses import json_response

_PATIENCE_SECONDS = 5.0
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Healthy(ApiStruct, frozen=True):
    status: Literal["ok"]


class Ready(ApiStruct, frozen=True):
    status: Literal["ready"]


class Operations:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._store = threadline.store
        self._metrics = threadline.metrics
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
        ]

    @operation("health", "Is the process alive", ResponseSpec(200, "It is.", Healthy), tag="operations", needs=None)
    async def health(self, request: Request) -> Response:
        return json_response(Healthy("ok"))

    @operation(
        "ready",
        "Can it reach its database, and is the schema right",
        ResponseSpec(200, "Yes.", Ready),
        tag="operations",
        needs=None,
    )
    async def ready(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._store.tenants()
        except TimeoutError:
            raise StoreUnavailable("the database did not answer in time") from None
        except StoreFailed as exc:
            raise StoreUnavailable("the database cannot be used") from exc
        return json_response(Ready("ready"))

    @operation(
        "metrics",
        "What this process is doing, for Prometheus",
        ResponseSpec(200, "Metrics in the text format.", str, media_types=(CONTENT_TYPE,)),
        tag="operations",
        description="For callers on the same machine, and for administrators from anywhere.",
        errors=(errors.RoleRefused,),
        needs=None,
    )
    async def metrics(self, request: Request) -> Response:
        if not _is_from_here(request):
            (await self._who_asks(request)).require("admin")
        return Response(exposition(await self._metrics.families()), headers={"Content-Type": CONTENT_TYPE})


def _is_from_here(request: Request) -> bool:
    """Not someone for whom a proxy on this machine speaks: it says so, or passes on the name it was asked under."""
    if request.client is None or request.client.host not in LOCAL_HOSTS:
        return False
    forwarded = any(name in request.headers for name in _FORWARDED)
    return not forwarded and host_name(request.headers.get("host", "")) in LOCAL_HOSTS

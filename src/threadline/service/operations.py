"""For whoever operates the service: is it alive, is it ready.

`/healthz` says that the process answers; `/readyz` that it can also reach its database and that the schema is right.
Neither needs a token, so neither says more than yes or no.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.bootstrap import Threadline
from threadline.core.errors import StoreFailed, StoreUnavailable
from threadline.service.answers import Shown, answer
from threadline.service.describing import Answer, operation

_PATIENCE_SECONDS = 5.0


class Healthy(Shown, frozen=True):
    status: Literal["ok"]


class Ready(Shown, frozen=True):
    status: Literal["ready"]


class Operations:
    def __init__(self, threadline: Threadline) -> None:
        self._store = threadline.store

    def routes(self) -> list[Route]:
        return [Route("/healthz", self.health), Route("/readyz", self.ready)]

    @operation("health", "Is the process alive", Answer(200, "It is.", Healthy), tag="operations", needs=None)
    async def health(self, request: Request) -> Response:
        return answer(Healthy("ok"))

    @operation(
        "ready",
        "Can it reach its database, and is the schema right",
        Answer(200, "Yes.", Ready),
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
        return answer(Ready("ready"))

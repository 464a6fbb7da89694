"""Health, readiness and metrics.

`/healthz` says that the process runs; `/readyz`, that a write could begin in its database now.
Neither needs a token, so neither reveals more. `/metrics` is in the text exposition format of Prometheus, version
0.0.4: a scraper on the same machine needs no token, others need an administrator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ApiStruct
from threadline.core import errors
from threadline.core.errors import StoreBusy, StoreFailed, StoreUnavailable
from threadline.observability.metrics import Family, Sample
from threadline.service.context import ServiceContext
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import ResponseSpec, operation

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# A database that does not answer has to become a 503, not a probe that hangs.
_TIMEOUT_SECONDS = 5.0


class HealthResponse(ApiStruct, frozen=True):
    status: Literal["ok"]


class ReadyResponse(ApiStruct, frozen=True):
    status: Literal["ready"]


class MonitoringRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._store = context.threadline.store
        self._metrics = context.threadline.metrics

    def routes(self) -> list[Route]:
        return [
            Route("/healthz", self.check_health),
            Route("/readyz", self.check_readiness),
            Route("/metrics", self.read_metrics),
        ]

    @operation("health", "Check that the process runs", ResponseSpec(200, "It runs.", HealthResponse), tag="operations")
    async def check_health(self, request: Request) -> Response:
        return json_response(HealthResponse("ok"))

    @operation(
        "ready",
        "Check that the database is reachable and that a write could begin",
        ResponseSpec(200, "The service is ready.", ReadyResponse),
        tag="operations",
    )
    async def check_readiness(self, request: Request) -> Response:
        try:
            # A probe that waits longer than its caller is counted as failed anyway.
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._store.check_writable()
        except TimeoutError:
            raise StoreBusy(f"a write could not begin within {_TIMEOUT_SECONDS:g} seconds") from None
        except StoreBusy:
            raise
        except StoreFailed as exc:
            raise StoreUnavailable("database cannot be used") from exc
        return json_response(ReadyResponse("ready"))

    @operation(
        "metrics",
        "Read metrics for Prometheus",
        ResponseSpec(200, "Metrics in the text exposition format.", str, media_types=(CONTENT_TYPE,)),
        tag="operations",
        description="Callers on the same machine need no token, others that of an administrator.",
        errors=(errors.RoleRefused,),
    )
    async def read_metrics(self, request: Request) -> Response:
        return Response(exposition(await self._metrics.families()), headers={"Content-Type": CONTENT_TYPE})


def exposition(families: Iterable[Family]) -> str:
    return "".join(_family(family) for family in families)


def _family(family: Family) -> str:
    head = f"# HELP {family.name} {_escape(family.text)}\n# TYPE {family.name} {family.kind}\n"
    return head + "".join(_line(family.name, sample) for sample in family.samples)


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{key}="{_escape_label(value)}"' for key, value in sample.labels)
    return f"{name}{sample.suffix}{'{' + labels + '}' if labels else ''} {_number(sample.value)}\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return _escape(text).replace('"', '\\"')

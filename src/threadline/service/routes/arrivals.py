"""The route for what arrived from messaging platforms and what became of it. For administrators."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ApiStruct, Moment
from threadline.core.channels import InboxRow, InboxStatus
from threadline.core.turns import Surface
from threadline.messaging.inbox_rows import list_inbox, unread_reason
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_query
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import ResponseSpec, operation


class ArrivalsQuery(RequestStruct, frozen=True):
    status: InboxStatus | msgspec.UnsetType = msgspec.UNSET
    platform: str | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class ArrivalInfo(ApiStruct, frozen=True):
    """An event of a platform without its text. `key` is the platform's id of it; `decision` says what became of it, and
    `reason` why a `dead` one could not be read. Replies are deliveries."""

    key: str
    platform: Surface
    status: str
    created_at: Moment
    updated_at: Moment
    decision: str | None = None
    user_id: str | None = None
    turn_id: str | None = None
    correlation_id: str | None = None
    reason: str | None = None


class ArrivalsResponse(ApiStruct, frozen=True):
    arrivals: list[ArrivalInfo]


class ArrivalRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._store = context.threadline.store

    def routes(self) -> list[Route]:
        return [Route("/api/v1/channels/inbox", self.list_arrivals, methods=["GET"])]

    @operation(
        "listArrivals",
        "List what arrived from platforms",
        ResponseSpec(200, "The tenant's arrivals, newest first, without their text.", ArrivalsResponse),
        tag="channels",
        query=ArrivalsQuery,
    )
    async def list_arrivals(self, request: Request) -> Response:
        query = read_query(request, ArrivalsQuery)
        found = await list_inbox(
            self._store,
            scope_of(request),
            status=query.status or None,
            platform=query.platform or None,
            limit=query.limit,
        )
        return json_response(ArrivalsResponse([_arrival_info(row) for row in found]))


def _arrival_info(row: InboxRow) -> ArrivalInfo:
    return ArrivalInfo(
        key=row.key,
        platform=row.platform,
        status=row.status,
        created_at=row.created_at,
        updated_at=row.updated_at,
        decision=row.decision,
        user_id=row.owner_id,
        turn_id=row.turn_id,
        correlation_id=row.correlation_id,
        reason=unread_reason(row),
    )

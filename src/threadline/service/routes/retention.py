"""The routes of administrators for retention: the policy, what it would remove, and legal holds."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.administration.retention import Retention
from threadline.api_types import ApiStruct, Id, Moment, OkResponse
from threadline.core import errors
from threadline.core.retention import LegalHold
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import Body, Link, ResponseSpec, operation

_HOLDS = "/api/v1/holds"


class RetentionResponse(ApiStruct, frozen=True):
    """Days of the tenant's policy, null if there is no limit, and how many threads the next run purges, by rule."""

    age: int | None
    archived: int | None
    deleted: int | None
    audit: int | None
    overdue: dict[str, int]


class AddHoldBody(RequestStruct, frozen=True):
    """For a user, for a thread (its id), or for the whole tenant with neither."""

    reason: str
    user: str | None = None
    thread_id: Id | None = None


class HoldInfo(ApiStruct, frozen=True):
    id: str
    reason: str
    created_by: str
    created_at: Moment
    user: str | None = None
    thread_id: str | None = None


class HoldsResponse(ApiStruct, frozen=True):
    holds: list[HoldInfo]


class RetentionRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/retention", self.read_retention, methods=["GET"]),
            Route(_HOLDS, self.list_holds, methods=["GET"]),
            Route(_HOLDS, self.add_hold, methods=["POST"]),
            Route(_HOLDS + "/{hold_id}", self.release_hold, methods=["DELETE"]),
        ]

    @operation(
        "readRetention",
        "Read the retention policy, and what it removes next",
        ResponseSpec(200, "The policy. At most 1,000 overdue threads are counted.", RetentionResponse),
        tag="administration",
    )
    async def read_retention(self, request: Request) -> Response:
        plan = await self._retention(request).plan()
        policy, overdue = plan.policy, {str(rule): threads for rule, threads in plan.threads.items()}
        return json_response(RetentionResponse(policy.age, policy.archived, policy.deleted, policy.audit, overdue))

    @operation(
        "listHolds",
        "List legal holds, oldest first",
        ResponseSpec(200, "The tenant's holds.", HoldsResponse),
        tag="administration",
    )
    async def list_holds(self, request: Request) -> Response:
        return json_response(HoldsResponse([_hold_info(hold) for hold in await self._retention(request).holds()]))

    @operation(
        "addHold",
        "Forbid purges of a thread, a user or the tenant",
        ResponseSpec(201, "The hold.", HoldInfo, links=(Link("releaseHold", {"holdId": "$response.body#/id"}),)),
        tag="administration",
        body=Body(AddHoldBody, {"a user": {"reason": "case 17", "user": "ada"}}),
        errors=(errors.InvalidName, errors.InvalidText),
    )
    async def add_hold(self, request: Request) -> Response:
        retention, body = self._retention(request), await read_body(request, AddHoldBody)
        hold = await retention.add_hold(body.reason, user_id=body.user, thread_id=body.thread_id)
        return json_response(_hold_info(hold), 201)

    @operation(
        "releaseHold",
        "Release a legal hold",
        ResponseSpec(200, "What it protected can be purged again.", OkResponse),
        tag="administration",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def release_hold(self, request: Request) -> Response:
        await self._retention(request).release(request.path_params["hold_id"])
        return json_response(OkResponse(True))

    def _retention(self, request: Request) -> Retention:
        return self._threadline.administration(scope_of(request)).retention


def _hold_info(hold: LegalHold) -> HoldInfo:
    return HoldInfo(hold.id, hold.reason, hold.created_by, hold.created_at, hold.user_id, hold.thread_id)

"""The route that lists usage: the tenant's for an administrator, their own for everybody else."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, TypeAlias, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import Id, UsageEntry, UsageResponse
from threadline.core import errors
from threadline.core.usage import USAGE_GROUPS, UsageFilter, UsageGroup, UsageRow
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_query
from threadline.service.http.responses import json_response
from threadline.service.openapi.operation import ResponseSpec, operation

_GROUPS = "|".join(USAGE_GROUPS)
_By: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        description=f"Any of {', '.join(USAGE_GROUPS)}, separated by commas. Without it, one sum.",
        extra_json_schema={"pattern": f"^({_GROUPS})(,({_GROUPS}))*$"},
    ),
]
_Since: TypeAlias = Annotated[dt.date, msgspec.Meta(description="The first day (UTC). Default: the month's first.")]
_Until: TypeAlias = Annotated[dt.date, msgspec.Meta(description="The last day (UTC). Default: today.")]
_User: TypeAlias = Annotated[str, msgspec.Meta(description="Only this user; another than you: administrators only.")]


class UsageParameters(RequestStruct, frozen=True):
    by: _By | None = None
    since: _Since | None = None
    until: _Until | None = None
    user: _User | None = None
    agent: Id | None = None


class UsageRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [Route("/api/v1/usage", self.list_usage, methods=["GET"])]

    @operation(
        "listUsage",
        "List what was used, by day, user, agent and model",
        ResponseSpec(200, "One entry for each group, in the order of its keys.", UsageResponse),
        tag="administration",
        description="Administrators see the tenant, others see themselves. Turns count on the day they end.",
        query=UsageParameters,
        errors=(errors.InvalidName, errors.RoleRefused),
    )
    async def list_usage(self, request: Request) -> Response:
        query = read_query(request, UsageParameters)
        # `UsageReports` checks that each is a group.
        groups = cast(list[UsageGroup], [] if query.by is None else query.by.split(","))
        wanted: UsageFilter = {
            "by": groups,
            "since": query.since,
            "until": query.until,
            "user": query.user,
            "agent": query.agent,
        }
        found = await self._threadline.usage_reports(scope_of(request)).read(**wanted)
        return json_response(UsageResponse([_entry(row) for row in found], self._threadline.settings.currency))


def _entry(row: UsageRow) -> UsageEntry:
    fields = msgspec.structs.asdict(row)
    return UsageEntry(user=fields.pop("user_id"), agent=fields.pop("agent_id"), **fields)

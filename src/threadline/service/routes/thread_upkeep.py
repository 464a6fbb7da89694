"""The routes that compact, purge and prune threads, and the one that reads a turn by its id."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import OkResponse, PruneResponse, SummaryResponse, TurnInfo
from threadline.core import errors
from threadline.core.checks import LARGEST_INTEGER
from threadline.core.errors import NotFound
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body
from threadline.service.http.responses import json_response, turn_info
from threadline.service.openapi.operation import Body, ResponseSpec, operation
from threadline.service.routes.threads import find_thread

_THREAD = "/api/v1/ai/threads/{state_key}"
_LONGEST_SECONDS = 10**10


class CompactBody(RequestStruct, frozen=True):
    budget: (
        Annotated[int, msgspec.Meta(ge=1, le=LARGEST_INTEGER, description="Tokens; by default the window's.")] | None
    ) = None


class PruneBody(RequestStruct, frozen=True):
    older_than_seconds: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_SECONDS)] = 0.0


class ThreadUpkeepRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_THREAD + "/compact", self.compact_thread, methods=["POST"]),
            Route(_THREAD + "/purge", self.purge_thread, methods=["DELETE"]),
            Route("/api/v1/ai/threads/prune", self.prune_threads, methods=["POST"]),
            Route("/api/v1/ai/turns/{turn_id}", self.read_turn, methods=["GET"]),
        ]

    @operation(
        "compactThread",
        "Summarise the older part of a thread for the agent",
        ResponseSpec(200, "The summary; empty if the thread is short enough.", SummaryResponse),
        tag="threads",
        body=Body(CompactBody, {"now": {}}, required=False),
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def compact_thread(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, CompactBody)
        thread = await find_thread(self._threadline.threads(scope), request.path_params["state_key"])
        made = await self._threadline.compaction.compact(scope, thread.id, budget=body.budget)
        if made is None:
            return json_response(SummaryResponse())
        return json_response(SummaryResponse(made.point.timeline_id, made.point.seq, made.text, made.created_at))

    @operation(
        "purgeThread",
        "Remove a thread for good",
        ResponseSpec(200, "It is removed, or was.", OkResponse),
        tag="threads",
        description="With every message that no branch or saved point shows. A deleted thread is named by its id.",
        errors=(errors.InvalidName,),
    )
    async def purge_thread(self, request: Request) -> Response:
        threads = self._threadline.threads(scope_of(request))
        name = request.path_params["state_key"]
        try:
            thread_id = (await find_thread(threads, name)).id
        except NotFound:
            thread_id = name
        await threads.purge(thread_id)
        return json_response(OkResponse(True))

    @operation(
        "pruneThreads",
        "Remove empty threads",
        ResponseSpec(200, "How many were removed.", PruneResponse),
        tag="threads",
        description="The user's threads that never held a message and were not used for so long.",
        body=Body(PruneBody, {"older than a day": {"olderThanSeconds": 86400}}, required=False),
    )
    async def prune_threads(self, request: Request) -> Response:
        threads = self._threadline.threads(scope_of(request))
        body = await read_body(request, PruneBody)
        return json_response(
            PruneResponse(await threads.prune(older_than=dt.timedelta(seconds=body.older_than_seconds)))
        )

    @operation(
        "readTurn",
        "Read a turn",
        ResponseSpec(200, "The turn as it is now.", TurnInfo),
        tag="threads",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_turn(self, request: Request) -> Response:
        scope = scope_of(request)
        return json_response(turn_info(await self._threadline.turns.find(scope, request.path_params["turn_id"])))

"""The routes of saved points: names that a user gave to points of threads, and loading one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import ForgetResponse, Name, SavedPointInfo, SavedPointsResponse, StateKey, ThreadInfo
from threadline.core import errors
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, idempotency_key, read_body
from threadline.service.http.responses import json_response, saved_point_info, thread_info
from threadline.service.openapi.operation import Body, Link, ResponseSpec, operation
from threadline.service.routes.threads import ExpectedHeadBody, MessagePosition, find_thread
from threadline.threads.user_threads import Threads

_SAVES = "/api/v1/ai/saves"


class SavePointBody(RequestStruct, frozen=True):
    state_key: StateKey
    at: MessagePosition | None = None


class LoadPointBody(ExpectedHeadBody, frozen=True):
    name: Name


class SaveRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        # `path`: a name may contain slashes.
        name = _SAVES + "/{name:path}"
        return [
            Route(_SAVES, self.list_saved_points, methods=["GET"]),
            Route(name, self.save, methods=["PUT"]),
            Route(name, self.forget, methods=["DELETE"]),
            Route("/api/v1/ai/threads/{state_key}/load", self.load, methods=["POST"]),
        ]

    @operation(
        "listSavedPoints",
        "List saved points",
        ResponseSpec(200, "The user's saved points, by name.", SavedPointsResponse),
        tag="saves",
    )
    async def list_saved_points(self, request: Request) -> Response:
        saved = await self._threads(request).saved_points()
        return json_response(SavedPointsResponse([saved_point_info(each) for each in saved]))

    @operation(
        "savePoint",
        "Save a point of a thread under a name",
        ResponseSpec(
            200,
            "The saved point. A name that was used before is moved to it.",
            SavedPointInfo,
            links=(
                Link("deleteSavedPoint", {"name": "$response.body#/name"}),
                Link("loadPoint", {"stateKey": "$request.body#/stateKey"}, {"name": "$response.body#/name"}),
            ),
        ),
        tag="saves",
        body=Body(SavePointBody, {"here": {"stateKey": "lisbon"}, "earlier": {"stateKey": "lisbon", "at": 1}}),
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def save(self, request: Request) -> Response:
        threads = self._threads(request)
        body = await read_body(request, SavePointBody)
        thread = await find_thread(threads, body.state_key)
        return json_response(saved_point_info(await threads.save(thread.id, request.path_params["name"], at=body.at)))

    @operation(
        "deleteSavedPoint",
        "Delete a saved point",
        ResponseSpec(200, "The name is free, or was not used. No message is deleted.", ForgetResponse),
        tag="saves",
        errors=(errors.InvalidName, errors.LimitExceeded),
    )
    async def forget(self, request: Request) -> Response:
        forgotten = await self._threads(request).forget_saved_point(request.path_params["name"])
        return json_response(ForgetResponse(True, forgotten))

    @operation(
        "loadPoint",
        "Load a saved point: continue a thread from there",
        ResponseSpec(200, "The thread on a new timeline that starts at the saved point.", ThreadInfo),
        tag="saves",
        body=Body(LoadPointBody, {"by name": {"name": "before the trip"}}),
        headers=("Idempotency-Key",),
        errors=(errors.NotFound, errors.InvalidName, errors.KeyReused, errors.HeadMoved),
    )
    async def load(self, request: Request) -> Response:
        threads = self._threads(request)
        body = await read_body(request, LoadPointBody)
        thread = await find_thread(threads, request.path_params["state_key"])
        moved = await threads.load(thread.id, body.name, key=idempotency_key(request), **body.head())
        return json_response(thread_info(moved))

    def _threads(self, request: Request) -> Threads:
        return self._threadline.threads(scope_of(request))

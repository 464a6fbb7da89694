"""The routes of saved points: the names a user gave to points of threads, and going on from one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import Name, OkResponse, SavedPointInfo, SavedPointsResponse, StateKey, ThreadInfo
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import Body, Link, ResponseSpec, operation
from threadline.service.requests import Shape, idempotency_key, read_body
from threadline.service.responses import json_response, saved_point_info, thread_info
from threadline.service.routes.threads import Position, find_by_key
from threadline.threads.user_threads import Threads

_SAVES = "/api/v1/ai/saves"


class Saving(Shape, frozen=True):
    state_key: StateKey
    at: Position | None = None


class Loading(Shape, frozen=True):
    name: Name


class SaveRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        # A name is any visible text, so it may hold a slash.
        name = _SAVES + "/{name:path}"
        return [
            Route(_SAVES, self.list_saves, methods=["GET"]),
            Route(name, self.save, methods=["PUT"]),
            Route(name, self.forget, methods=["DELETE"]),
            Route("/api/v1/ai/threads/{state_key}/load", self.load, methods=["POST"]),
        ]

    @operation(
        "listSaves",
        "List saved points",
        ResponseSpec(200, "The user's own, by name.", SavedPointsResponse),
        tag="saves",
    )
    async def list_saves(self, request: Request) -> Response:
        saved = await (await self._threads(request)).saved_points()
        return json_response(SavedPointsResponse([saved_point_info(each) for each in saved]))

    @operation(
        "savePoint",
        "Give a point of a thread a name",
        ResponseSpec(
            200,
            "The saved point. A name that was used before now stands for this one.",
            SavedPointInfo,
            links=(
                Link("forgetPoint", {"name": "$response.body#/name"}),
                Link("loadPoint", {"stateKey": "$request.body#/stateKey"}, {"name": "$response.body#/name"}),
            ),
        ),
        tag="saves",
        body=Body(Saving, {"here": {"stateKey": "lisbon"}, "earlier": {"stateKey": "lisbon", "at": 1}}),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText),
        needs="member",
    )
    async def save(self, request: Request) -> Response:
        threads = await self._threads(request)
        asked = await read_body(request, Saving)
        thread = await find_by_key(threads, asked.state_key)
        return json_response(saved_point_info(await threads.save(thread.id, request.path_params["name"], at=asked.at)))

    @operation(
        "forgetPoint",
        "Forget a saved point",
        ResponseSpec(200, "The name is free, or was; the messages stay.", OkResponse),
        tag="saves",
        errors=(errors.InvalidName, errors.LimitExceeded),
        needs="member",
    )
    async def forget(self, request: Request) -> Response:
        threads = await self._threads(request)
        await threads.forget_saved_point(request.path_params["name"])
        return json_response(OkResponse(True))

    @operation(
        "loadPoint",
        "Go on from a saved point",
        ResponseSpec(200, "The thread as it is now, on a new timeline that begins there.", ThreadInfo),
        tag="saves",
        body=Body(Loading, {"go back": {"name": "before the trip"}}),
        headers=("Idempotency-Key",),
        errors=(errors.NotFound, errors.InvalidName, errors.KeyReused),
        needs="member",
    )
    async def load(self, request: Request) -> Response:
        threads = await self._threads(request)
        asked = await read_body(request, Loading)
        thread = await find_by_key(threads, request.path_params["state_key"])
        return json_response(thread_info(await threads.load(thread.id, asked.name, key=idempotency_key(request))))

    async def _threads(self, request: Request) -> Threads:
        return self._threadline.threads(await self._who_asks(request))

"""The routes of the home thread: which thread the caller's private chats on platforms continue."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import HomeResponse, Id
from threadline.core import errors
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body
from threadline.service.http.responses import json_response, thread_info
from threadline.service.openapi.operation import Body, ResponseSpec, operation
from threadline.service.routes.threads import find_thread

_HOME = "/api/v1/me/home"


class ChooseHomeBody(RequestStruct, frozen=True):
    """The thread, by its id or its state key."""

    thread: Id


class HomeThreadRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_HOME, self.read_home, methods=["GET"]),
            Route(_HOME, self.choose_home, methods=["PUT"]),
        ]

    @operation(
        "readHome",
        "Read which thread private chats on platforms continue",
        ResponseSpec(200, "The home thread; without `thread` if there is none yet.", HomeResponse),
        tag="users",
        description="Until the caller chooses one, it is created by their first private message on a platform.",
    )
    async def read_home(self, request: Request) -> Response:
        store = self._threadline.store
        home = await self._threadline.homes.find(store.scoped(scope_of(request)))
        return json_response(HomeResponse(None if home is None else thread_info(home)))

    @operation(
        "chooseHome",
        "Continue a thread in private chats on platforms",
        ResponseSpec(200, "The home thread.", HomeResponse),
        tag="users",
        description=(
            "The caller's private chats continue it from the next message on, unless they were moved to other threads. "
            "`conflict` if others read a place that continues the thread: branch it first."
        ),
        body=Body(ChooseHomeBody, {"a thread": {"thread": "lisbon"}}),
        errors=(errors.NotFound, errors.InvalidName, errors.Conflict),
    )
    async def choose_home(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, ChooseHomeBody)
        thread = await find_thread(self._threadline.threads(scope), body.thread)
        home = await self._threadline.store.transact(scope, lambda tx: self._threadline.homes.choose(tx, thread.id))
        return json_response(HomeResponse(thread_info(home)))

"""The route that brings a deleted thread back. It is named by its id, because its state key is free for another."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_types import Id, ThreadInfo
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import Body, ResponseSpec, operation
from threadline.service.requests import Shape, read_body
from threadline.service.responses import json_response, thread_info


class Restoring(Shape, frozen=True):
    id: Id


class RestoreRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [Route("/api/v1/ai/threads/restore", self.restore, methods=["POST"])]

    @operation(
        "restoreThread",
        "Bring a deleted thread back",
        ResponseSpec(200, "The thread, as it was.", ThreadInfo),
        tag="threads",
        body=Body(Restoring, {"it was a mistake": {"id": "a deleted thread"}}),
        errors=(errors.NotFound, errors.InvalidName, errors.DuplicateId),
        needs="member",
    )
    async def restore(self, request: Request) -> Response:
        threads = self._threadline.threads(await self._who_asks(request))
        asked = await read_body(request, Restoring)
        return json_response(thread_info(await threads.restore(asked.id)))

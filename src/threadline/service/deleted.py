"""The routes of deleted threads: which there are, and bringing one back while its messages are kept.

They are named by their id, because a deleted thread's state key is free for another.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.bootstrap import Threadline
from threadline.service.answers import answer, thread_json
from threadline.service.callers import WhoAsks
from threadline.service.reading import Shape, read_query

_DELETED = "/api/v1/ai/deleted"


class Listing(Shape, frozen=True):
    limit: Annotated[int, msgspec.Meta(le=2**53)] = 50
    cursor: str | None = None


class DeletedRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route(_DELETED, self.list_deleted, methods=["GET"]),
            Route(_DELETED + "/{thread_id}/restore", self.restore, methods=["POST"]),
        ]

    async def list_deleted(self, request: Request) -> Response:
        threads = self._threadline.threads(await self._who_asks(request))
        asked = read_query(request, Listing)
        page = await threads.page(limit=asked.limit, cursor=asked.cursor, archived=None, deleted=True)
        listed = {"threads": [thread_json(thread) for thread in page.items]}
        return answer(listed if page.next_cursor is None else {**listed, "nextCursor": page.next_cursor})

    async def restore(self, request: Request) -> Response:
        threads = self._threadline.threads(await self._who_asks(request))
        return answer(thread_json(await threads.restore(request.path_params["thread_id"])))

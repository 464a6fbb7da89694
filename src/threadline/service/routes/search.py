"""The route that searches threads: hits grouped by thread. `GET /api/v1/ai/threads?q=` lists single messages."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET
from msgspec import UnsetType as Unset
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.api_search_types import ThreadSearchResponse
from threadline.core import errors
from threadline.core.arguments import MOST_PASSAGES
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import read_query
from threadline.service.http.responses import json_response, thread_search_hit
from threadline.service.http.thread_filters import ThreadFilterQuery
from threadline.service.openapi.operation import ResponseSpec, operation


class SearchQuery(ThreadFilterQuery, frozen=True, kw_only=True):
    q: Annotated[str, msgspec.Meta(min_length=1, description="Words to search for.")]
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Threads of a page.")] = 20
    cursor: Annotated[str, msgspec.Meta(description="`nextCursor` of the previous page.")] | Unset = UNSET
    passages: Annotated[int, msgspec.Meta(ge=0, le=MOST_PASSAGES, description="Messages of each thread.")] = 3


class SearchRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [Route("/api/v1/ai/search", self.search, methods=["GET"])]

    @operation(
        "searchThreads",
        "Search titles and messages, grouped by thread",
        ResponseSpec(
            200,
            "Threads whose title contains all the words, then those with such messages, each with its best passages.",
            ThreadSearchResponse,
        ),
        tag="threads",
        query=SearchQuery,
        errors=(errors.InvalidCursor, errors.InvalidJson, errors.InvalidName, errors.LimitExceeded),
    )
    async def search(self, request: Request) -> Response:
        query = read_query(request, SearchQuery)
        page = await self._threadline.threads(scope_of(request)).search_threads(
            query.q,
            limit=query.limit,
            cursor=None if query.cursor is UNSET else query.cursor,
            passages=query.passages,
            **query.fields(),
        )
        return json_response(ThreadSearchResponse([thread_search_hit(each) for each in page], page.next_cursor))

"""Routes for whole threads: export, import, compact, summary, purge and prune; and the one that reads a turn by its id.

An export is streamed page by page. An import is all or nothing: it is read twice, first to check every line, so its
body is kept in a temporary file rather than in memory.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import tempfile
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from threadline.api_types import ImportResponse, OkResponse, PruneResponse, SummaryResponse, TurnInfo
from threadline.core import errors
from threadline.core.checks import LARGEST_INTEGER
from threadline.core.errors import NotFound
from threadline.core.transfer import ExportFormat
from threadline.core.turns import Summary
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_body, read_query
from threadline.service.http.responses import json_response, thread_info, turn_info
from threadline.service.openapi.operation import Body, ResponseSpec, operation
from threadline.service.routes.threads import find_thread
from threadline.threads.transfer import Importer, export, lines_of

_THREAD = "/api/v1/ai/threads/{state_key}"
# Three centuries: a time before that is still a date.
_LONGEST_SECONDS = 10**10
IMPORT_PATH = "/api/v1/ai/threads/import"
_IN_MEMORY_BYTES = 1_048_576
_MEDIA_TYPES: dict[ExportFormat, str] = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "markdown": "text/markdown; charset=utf-8",
}


class CompactBody(RequestStruct, frozen=True):
    budget: (
        Annotated[
            int, msgspec.Meta(ge=1, le=LARGEST_INTEGER, description="Tokens; by default a quarter of the window.")
        ]
        | None
    ) = None


class SummaryBody(RequestStruct, frozen=True):
    text: str


class PruneBody(RequestStruct, frozen=True):
    older_than_seconds: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_SECONDS)] = 0.0


class ThreadUpkeepRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route(_THREAD + "/compact", self.compact_thread, methods=["POST"]),
            Route(_THREAD + "/summary", self.read_summary, methods=["GET"]),
            Route(_THREAD + "/summary", self.change_summary, methods=["PUT"]),
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
        errors=(errors.NotFound, errors.InvalidName, errors.Conflict),
    )
    async def compact_thread(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, CompactBody)
        thread = await find_thread(self._threadline.threads(scope), request.path_params["state_key"])
        return json_response(_summary(await self._threadline.compaction.compact(scope, thread.id, budget=body.budget)))

    @operation(
        "readSummary",
        "Read the summary that the agent is shown",
        ResponseSpec(200, "The summary; empty if there is none.", SummaryResponse),
        tag="threads",
        description="Threads are summarised when the window is nearly full, or with `compact`. No message is deleted.",
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def read_summary(self, request: Request) -> Response:
        scope = scope_of(request)
        thread = await find_thread(self._threadline.threads(scope), request.path_params["state_key"])
        return json_response(_summary(await self._threadline.compaction.summary(scope, thread.id)))

    @operation(
        "changeSummary",
        "Edit the summary that the agent is shown",
        ResponseSpec(200, "The summary with its new text.", SummaryResponse),
        tag="threads",
        description="`conflict` if the thread has none: `compact` makes one.",
        body=Body(SummaryBody, {"edit": {"text": "We chose Lisbon; the flight is booked."}}),
        errors=(errors.NotFound, errors.InvalidName, errors.InvalidText, errors.LimitExceeded, errors.Conflict),
    )
    async def change_summary(self, request: Request) -> Response:
        scope = scope_of(request)
        body = await read_body(request, SummaryBody)
        thread = await find_thread(self._threadline.threads(scope), request.path_params["state_key"])
        return json_response(_summary(await self._threadline.compaction.set_summary(scope, thread.id, body.text)))

    @operation(
        "purgeThread",
        "Remove a thread for good",
        ResponseSpec(200, "It is removed, or was.", OkResponse),
        tag="threads",
        description="With every message that no branch or saved point shows. A deleted thread is named by its id.",
        errors=(errors.InvalidName, errors.UnderLegalHold),
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


def _summary(summary: Summary | None) -> SummaryResponse:
    if summary is None:
        return SummaryResponse()
    timeline_id, seq = summary.point
    return SummaryResponse(timeline_id, seq, summary.text, summary.created_at, summary.source, summary.model)


class ExportQuery(RequestStruct, frozen=True):
    format: ExportFormat = "jsonl"


class TransferRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/ai/threads/{state_key}/export", self.export, methods=["GET"]),
            Route(IMPORT_PATH, self.import_threads, methods=["POST"]),
        ]

    @operation(
        "exportThread",
        "Export a thread",
        ResponseSpec(
            200,
            "The thread with all its messages.",
            {"application/json": dict[str, Any], _MEDIA_TYPES["jsonl"]: str, _MEDIA_TYPES["markdown"]: str},
        ),
        tag="threads",
        query=ExportQuery,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def export(self, request: Request) -> Response:
        threads = self._threadline.threads(scope_of(request))
        query = read_query(request, ExportQuery)
        thread = await find_thread(threads, request.path_params["state_key"])
        return StreamingResponse(export(threads, thread.id, query.format), media_type=_MEDIA_TYPES[query.format])

    @operation(
        "importThreads",
        "Import threads",
        ResponseSpec(201, "The imported threads.", ImportResponse),
        tag="threads",
        description="Takes the lines of an export in the format `jsonl`. A thread that is here already gets what "
        "it lacks and keeps what it has, so a request can be repeated. "
        "System messages and parts of unknown types are refused; a system prompt is put into the thread's metadata as "
        "`importedSystemPrompt`, where no agent is shown it.",
        body=Body(str, media_types=("application/x-ndjson", "application/jsonl", "application/json")),
        errors=(errors.InvalidImport, errors.DuplicateId),
    )
    async def import_threads(self, request: Request) -> Response:
        tl = self._threadline
        importer = Importer(tl.store, tl.sealer, tl.clock, scope_of(request))
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
            async for piece in request.stream():
                # In a thread: beyond a megabyte this writes to the disk.
                await asyncio.to_thread(file.write, piece)
            done = await importer.run(lines_of(file, importer.longest_line))
        return json_response(ImportResponse([thread_info(each.thread) for each in done]), 201)

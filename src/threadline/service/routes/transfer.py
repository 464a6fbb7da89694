"""Export and import of threads: an export is streamed page by page, an import is all or nothing.

An import is read twice, first to check every line, so its body is kept in a temporary file rather than in memory.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from threadline.api_types import ImportResponse
from threadline.core import errors
from threadline.core.transfer import ExportFormat
from threadline.service.context import ServiceContext
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import RequestStruct, read_query
from threadline.service.http.responses import json_response, thread_info
from threadline.service.openapi.operation import Body, ResponseSpec, operation
from threadline.service.routes.threads import find_thread
from threadline.threads.transfer import Importer, export

IMPORT_PATH = "/api/v1/ai/threads/import"
_IN_MEMORY_BYTES = 1_048_576
_MEDIA_TYPES: dict[ExportFormat, str] = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "markdown": "text/markdown; charset=utf-8",
}


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
        description="Takes the lines of an export in the format `jsonl`. Either all threads are imported or none. "
        "System messages and parts of unknown types are refused; a system prompt is put into the thread's metadata as "
        "`importedSystemPrompt`, where no agent is shown it.",
        body=Body(str, media_types=("application/x-ndjson", "application/jsonl", "application/json")),
        errors=(errors.InvalidImport, errors.DuplicateId),
    )
    async def import_threads(self, request: Request) -> Response:
        importer = Importer(self._threadline.store, self._threadline.sealer, scope_of(request))
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
            async for piece in request.stream():
                # In a thread: beyond a megabyte this writes to the disk.
                await asyncio.to_thread(file.write, piece)
            imported = await importer.run(lambda: _lines(file, importer.longest_line))
        return json_response(ImportResponse([thread_info(thread) for thread in imported]), 201)


def _lines(file: IO[bytes], max_length: int) -> Iterator[bytes]:
    """All lines from the start. A line that is too long is cut just over the limit, so that the importer sees it."""
    file.seek(0)
    while line := file.readline(max_length + 1):
        yield line

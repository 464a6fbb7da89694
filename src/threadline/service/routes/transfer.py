"""The routes that let threads out and in: an export is written page by page, an import is taken whole or not at all.

An import is read twice, once to check every line, so its body waits in a temporary file rather than in memory.
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
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.transfer import ExportFormat
from threadline.service.auth.callers import WhoAsks
from threadline.service.operation import Body, ResponseSpec, operation
from threadline.service.requests import Shape, read_query
from threadline.service.responses import json_response, thread_info
from threadline.service.routes.threads import find_by_key
from threadline.threads.transfer import Importer, export

IMPORT_PATH = "/api/v1/ai/threads/import"
_IN_MEMORY = 1_048_576
_MEDIA_TYPES: dict[ExportFormat, str] = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "markdown": "text/markdown; charset=utf-8",
}


class Exporting(Shape, frozen=True):
    format: ExportFormat = "jsonl"


class TransferRoutes:
    def __init__(self, threadline: Threadline, who_asks: WhoAsks) -> None:
        self._threadline = threadline
        self._who_asks = who_asks

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/ai/threads/{state_key}/export", self.export, methods=["GET"]),
            Route(IMPORT_PATH, self.import_threads, methods=["POST"]),
        ]

    @operation(
        "exportThread",
        "Let a thread out",
        ResponseSpec(
            200,
            "The thread, written page by page.",
            {"application/json": dict[str, Any], _MEDIA_TYPES["jsonl"]: str, _MEDIA_TYPES["markdown"]: str},
        ),
        tag="threads",
        query=Exporting,
        errors=(errors.NotFound, errors.InvalidName),
    )
    async def export(self, request: Request) -> Response:
        threads = self._threadline.threads(await self._who_asks(request))
        asked = read_query(request, Exporting)
        thread = await find_by_key(threads, request.path_params["state_key"])
        return StreamingResponse(export(threads, thread.id, asked.format), media_type=_MEDIA_TYPES[asked.format])

    @operation(
        "importThreads",
        "Take threads in",
        ResponseSpec(201, "The threads that were made.", ImportResponse),
        tag="threads",
        description="The lines that an export as `jsonl` gives; all of them are taken, or none.",
        body=Body(str, media_types=("application/x-ndjson", "application/jsonl", "application/json")),
        errors=(errors.InvalidImport, errors.DuplicateId),
        needs="member",
    )
    async def import_threads(self, request: Request) -> Response:
        scope = await self._who_asks(request)
        importer = Importer(self._threadline.store, self._threadline.sealer, scope)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            async for piece in request.stream():
                await asyncio.to_thread(file.write, piece)
            made = await importer.run(lambda: _lines(file, importer.longest_line))
        return json_response(ImportResponse([thread_info(thread) for thread in made]), 201)


def _lines(file: IO[bytes], longest: int) -> Iterator[bytes]:
    """From the start each time. A line that is too long is cut, so that whoever reads it can say so."""
    file.seek(0)
    while line := file.readline(longest + 1):
        yield line

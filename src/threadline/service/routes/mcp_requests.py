"""MCP over streamable HTTP: the threads of the caller as tools and resources.

There are no sessions and no streams from the server, so any worker answers any request, and GET and DELETE are 405 as
the protocol has it for such servers.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadline.service.context import ServiceContext
from threadline.service.http.problems import Problem
from threadline.service.http.request_context import scope_of
from threadline.service.http.requests import read_body
from threadline.service.openapi.operation import Body, Fault, ResponseSpec, operation


class McpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request or, without an id, a notification of JSON-RPC."""

    jsonrpc: Literal["2.0"]
    method: str
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class McpResponse(msgspec.Struct, frozen=True):
    """A result or an error of JSON-RPC."""

    jsonrpc: Literal["2.0"]
    id: int | str | None = None
    result: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    error: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class McpRoutes:
    def __init__(self, context: ServiceContext) -> None:
        self._threadline = context.threadline
        self._protocol: Any = None

    def routes(self) -> list[Route]:
        return [Route("/mcp", self.answer, methods=["POST"])]

    @operation(
        "callMcp",
        "Call a method of the MCP server",
        ResponseSpec(200, "The response to the request.", McpResponse),
        ResponseSpec(202, "The notification was received."),
        tag="mcp",
        description="For MCP clients. Tools that write are offered to members and administrators only.",
        body=Body(McpRequest, {"the tools": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}),
        errors=(Fault(501, "mcp_missing"),),
    )
    async def answer(self, request: Request) -> Response:
        scope = scope_of(request)
        body = msgspec.json.encode(await read_body(request, McpRequest))
        gateway = self._threadline.as_user(scope.user_id, tenant=scope.tenant_id, role=scope.role)
        protocol = await self._import_protocol()
        answer = await protocol.answer_http(
            gateway, can_write=scope.role != "viewer", headers=request.headers, body=body
        )
        return Response(answer.body, answer.status, media_type=answer.media_type)

    async def _import_protocol(self) -> Any:
        """In a thread, because the SDK is slow to import; here, because it is an extra."""
        if self._protocol is None:
            try:
                self._protocol = await asyncio.to_thread(importlib.import_module, "threadline.mcp_server.protocol")
            except ModuleNotFoundError as exc:
                what = "this service has no MCP server: install threadline[mcp] where it runs"
                raise Problem(501, "mcp_missing", what) from exc
        return self._protocol

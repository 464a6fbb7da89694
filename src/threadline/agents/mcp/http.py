"""HTTP for MCP servers: a client whose responses are bounded. The SDK reads a JSON response whole, of any size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import httpx2

from threadline.agents.mcp.stdio import MESSAGE_BYTES

_CONNECT_SECONDS = 10.0


def make_http_client(headers: Mapping[str, str], *, seconds: float) -> httpx2.AsyncClient:
    """`seconds` is how long a server may be silent."""
    return httpx2.AsyncClient(
        # A compressed response could be a thousand times larger than it is counted.
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(seconds, connect=_CONNECT_SECONDS),
        transport=_BoundedTransport(httpx2.AsyncHTTPTransport()),
    )


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        # Streams of events are not bounded in all; the SDK bounds each event.
        if "text/event-stream" not in response.headers.get("content-type", ""):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MESSAGE_BYTES:
                # The SDK turns a StreamError into the error of the request.
                raise httpx2.StreamError(f"the server's answer has more than {MESSAGE_BYTES:,} bytes: ask for less")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()

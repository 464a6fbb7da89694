"""The service inside an ASGI application of your own: your routes beside Threadline's API and page.

    python examples/service_in_an_app.py

Prints:

    mine: hello
    threadline: 200
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import threadline
from threadline.service.app import build_app


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@asynccontextmanager
async def application() -> AsyncIterator[Starlette]:
    async with threadline.open(":memory:") as tl:
        service = build_app(tl)
        # Starlette starts only the outermost application; the service's own start recovers turns.
        async with service.router.lifespan_context(service):
            yield Starlette(routes=[Route("/hello", hello), Mount("/", service)])


async def main() -> None:
    async with application() as app:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            print("mine:", (await client.get("/hello")).text)
            print("threadline:", (await client.get("/api/v1/ai/threads")).status_code)


asyncio.run(main())

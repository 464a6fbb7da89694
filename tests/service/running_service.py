"""A served app in the test's own loop, and a client that speaks to it as AI SDK clients do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn.server

from threadline.bootstrap import Threadline
from threadline.service.app import build_app
from threadline.service.auth.authentication import AuthenticateScope
from threadline.service.process.server import Server, address_of, listen

CHAT = "/api/v1/ai/chat"
THREADS = "/api/v1/ai/threads"


class _Quick:
    """`asyncio` for uvicorn, which looks ten times a second whether it is to end, and then waits a tenth of a second.
    A thousand servers end in a run of these tests."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


vars(uvicorn.server)["asyncio"] = _Quick()


def client_of(url: str, headers: Mapping[str, str] | None = None) -> Client:
    """Without the certificates of the machine, whose reading takes longer than most tests: this is plain HTTP."""
    return Client(httpx2.AsyncClient(base_url=url, headers=headers, timeout=30, verify=False))


class Client:
    """Requests of one caller. Streams are lists of chunks; `ids` are those of the last stream read."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.ids: list[str] = []

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    async def close(self) -> None:
        await self.http.aclose()

    async def ask(self, text: str, state_key: str | None = None, **more: Any) -> list[dict[str, Any]]:
        """One turn, to its end."""
        answer = await self.post_chat(text, state_key, **more)
        assert answer.status_code == 200, answer.text
        return self.chunks(answer)

    async def post_chat(
        self, text: str, state_key: str | None = None, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        body = {"message": {"role": "user", "parts": [{"type": "text", "text": text}]}, **more}
        if state_key is not None:
            body["id"] = state_key
        return await self.http.post(CHAT, json=body, headers=headers)

    async def resume(self, state_key: str, then: Callable[[], None]) -> list[dict[str, Any]]:
        """The active stream to its end; `then` is called once it has begun."""
        async with self.http.stream("GET", f"{CHAT}/{state_key}/stream") as answer:
            assert answer.status_code == 200
            text = ""
            async for piece in answer.aiter_text():
                if not text:
                    then()
                text += piece
        return self._read(text)

    def chunks(self, answer: httpx2.Response) -> list[dict[str, Any]]:
        return self._read(answer.text)

    def _read(self, text: str) -> list[dict[str, Any]]:
        *said, done, rest = text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return self.frames(said)

    def frames(self, frames: list[str]) -> list[dict[str, Any]]:
        lines = [line for frame in frames for line in frame.splitlines() if not line.startswith(":")]
        self.ids = [line[4:] for line in lines if line.startswith("id: ")]
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]

    async def messages(self, state_key: str) -> list[tuple[str, str]]:
        """The stored history, as roles and words."""
        answer = await self.http.get(f"{THREADS}/{state_key}")
        return [(message["role"], words(message)) for message in answer.json()["messages"]]


def words(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message["parts"])


def said(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


async def quiet(threadline: Threadline) -> None:
    """Until no request is open: what follows the last byte of a stream has been done as well."""
    async with asyncio.timeout(30):
        while threadline.metrics.value("threadline_http_requests_open"):  # noqa: ASYNC110 - a gauge tells nobody
            await asyncio.sleep(0)


@asynccontextmanager
async def serving(threadline: Threadline, *, authenticate: AuthenticateScope | None = None) -> AsyncIterator[Client]:
    listening = listen("127.0.0.1", 0)
    server = Server(build_app(threadline, authenticate=authenticate), grace_seconds=1)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    await server.ready.wait()
    client = client_of(address_of(listening))
    try:
        yield client
    finally:
        await client.close()
        server.should_exit = True
        await running

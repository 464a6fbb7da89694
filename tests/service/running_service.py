"""The app, served in the test's event loop, and a client that behaves like an AI SDK client."""

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
    """`asyncio` for uvicorn with shorter sleeps. It checks ten times a second whether to stop, and a test run stops a
    thousand servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


vars(uvicorn.server)["asyncio"] = _Quick()


def client_of(url: str, headers: Mapping[str, str] | None = None) -> Client:
    """Does not load the machine's certificates, which takes longer than most tests: this is plain HTTP."""
    return Client(httpx2.AsyncClient(base_url=url, headers=headers, timeout=120, verify=False))


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
        """Sends a message and reads the stream to its end."""
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
        """Reads the active stream to its end; calls `then` once it has started."""
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
        """The stored history as pairs of role and text."""
        answer = await self.http.get(f"{THREADS}/{state_key}")
        return [(message["role"], message_text(message)) for message in answer.json()["messages"]]


def error_code(answer: httpx2.Response) -> str:
    """The code of a refusal: of a problem, or of an error in OpenAI's shape under `/v1`."""
    if answer.url.path.startswith("/v1/"):
        assert answer.headers["content-type"] == "application/json"
        return str(answer.json()["error"]["code"])
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["code"])


def message_text(message: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in message["parts"])


def streamed_text(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


async def wait_until_idle(threadline: Threadline) -> None:
    """Waits until no request is open, so that everything after the last byte of a stream is done too."""
    async with asyncio.timeout(30):
        while threadline.metrics.value("threadline_http_requests_open"):  # noqa: ASYNC110 - a gauge cannot be awaited
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

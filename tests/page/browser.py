"""Debian's Chromium, installed if possible, and a service in its own thread."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, sync_playwright
from starlette.requests import Request

from tests.npm_packages import TOOLS
from tests.turns.steered_process import Describer
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.events import Event, FinalText, Source
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope
from threadline.library import UserView
from threadline.service.app import build_app
from threadline.service.auth.authentication import AuthenticateScope
from threadline.service.http.problems import Problem
from threadline.service.process.server import Server, address_of, listen
from threadline.settings import ServiceSettings, Settings

T = TypeVar("T")
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_INSTALL_SECONDS = 600


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def install(*packages: str) -> None:
    """Installs Debian packages if this user may. Callers check whether it worked."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-q", *words], env=quiet, check=False, capture_output=True, timeout=_INSTALL_SECONDS)


def chromium() -> str:
    """The browser's path; skips the test if it is missing and cannot be installed."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "chromium.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        found = find_chromium()
        if found is None:
            install("chromium", "fonts-dejavu-core")
            found = find_chromium()
    if found is None:
        pytest.skip("there is no Chromium: install one (on Debian: apt-get install chromium)")
    return found


@contextmanager
def browsing() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


async def parrot(prompt: Prompt) -> AsyncGenerator[Event | str, None]:
    """Repeats a given text word by word and names a source."""
    said = plain_text(prompt.messages[-1].parts)
    for word in said.split(" "):
        yield f"{word} "
    yield Source("one", "https://threadline.example/docs", "The documentation")


async def authenticate_by_token_text(request: Request) -> Scope:
    """A token is its user's name; requests without one are refused."""
    scheme, _, user_id = request.headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not user_id or user_id == "wrong":
        raise Problem(401, "not_signed_in", "Sign in first.")
    return Scope("local", user_id)


class Service:
    """A running service; `do` runs a coroutine in its event loop."""

    def __init__(
        self,
        agents: Mapping[str, Any] | None = None,
        *,
        origins: tuple[str, ...] = (),
        authenticate: AuthenticateScope | None = authenticate_by_token_text,
    ) -> None:
        self._settings = ServiceSettings(grace_seconds=1.0, origins=origins)
        self._authenticate = authenticate
        self._may_continue = asyncio.Event()
        self._may_continue.set()
        self._agents = {
            "parrot": parrot,
            "patient": self._answer_patiently,
            "corrector": self._correct,
            "describer": Describer(tool_gate=self._may_continue).agent(),
            **(agents or {}),
        }
        self.url = ""
        self.threadline: Threadline
        self._server: Server
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="service")

    def settings(self) -> Settings:
        return Settings(database=":memory:", service=self._settings)

    def start(self) -> None:
        self._thread.start()
        self._started.result(30)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """While entered, the agents `patient` and `corrector` start their answers and do not finish them, and the tool
        of `describer` does not return."""
        self._loop.call_soon_threadsafe(self._may_continue.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._may_continue.set)

    async def hand_over(self, *, cuts: bool) -> None:
        """Hands the worker's turns over as a deploy does; with `cuts` it also breaks the readers' connections."""
        await self.threadline.runner.close(hands_over=True)
        if cuts:
            for request in list(self._server.server_state.tasks):
                request.cancel()
        else:
            await self.threadline.recovery.sweep()

    async def _answer_patiently(self, prompt: Prompt) -> AsyncGenerator[Event | str, None]:
        yield "I am taking my time, "
        await self._may_continue.wait()
        yield "and now I am done."

    async def _correct(self, prompt: Prompt) -> AsyncGenerator[Event | str, None]:
        yield "It is in Lisbon."
        yield FinalText("It is in Porto.")
        await self._may_continue.wait()
        yield Source("one", "https://threadline.example/porto", "The map")

    def user(self, name: str) -> UserView:
        return self.threadline.as_user(name)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        settings = self.settings()
        async with open_threadline(settings=settings, agents=self._agents) as self.threadline:
            listening = listen("127.0.0.1", settings.service.port if settings.oidc else 0)
            self._server = server = Server(build_app(self.threadline, authenticate=self._authenticate), grace_seconds=1)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            await server.ready.wait()
            self.url = address_of(listening)
            self._started.set_result(None)
            await self._end.wait()
            server.should_exit = True
            await serving

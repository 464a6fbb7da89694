"""A messaging platform and the service behind it, for measuring: a stand-in for Slack here, services in processes.

Services are `threadline serve` as it comes, on a database that several of them may share. Everybody who writes is
linked beforehand. The agent takes its time, and says which message it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.places import ROOT
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.threads import Scope
from threadline.settings import load
from threadline.testing.platforms import FakeSlack
from threadline.vault import new_key

ADMIN = Scope(role="admin")
WEBHOOK = "/api/v1/tenants/local/channels/slack/webhook"
SLOW_SECONDS = 2.0

_SETTINGS = """\
database = "{database}"
agent = "{agent}"
[agents.slow]
provider = "function"
settings = {{ function = "bench.channel_load:answer_slowly" }}
[agents.instant]
provider = "function"
settings = {{ function = "bench.channel_load:answer" }}
[service]
recovery_seconds = 1.0
lease_seconds = 5.0
[channels]
sweep_seconds = 0.2
keys = {{ bench = "{key}" }}
[channels.slack]
api = "{api}"
"""


async def answer(text: str) -> str:
    return f"answer to {text}"


async def answer_slowly(text: str) -> str:
    await asyncio.sleep(SLOW_SECONDS)
    return await answer(text)


class Service:
    """One process that serves. `kill` is a power cut; `restart` brings it back at the same address."""

    def __init__(self, settings: Path) -> None:
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        command = ("-m", "threadline", "serve", "--settings", str(self._settings), "--port", port)
        quiet = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
            env=quiet,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            line = (await self._process.stdout.readline()).decode()
        if not line:
            raise RuntimeError("the service did not start")
        self.url = line.split()[-1]

    async def kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()


class Ground:
    """A stand-in for Slack, and what services need to know about it."""

    def __init__(self, slack: FakeSlack, settings: Path) -> None:
        self.slack = slack
        self._settings = settings

    def people(self, count: int) -> list[str]:
        return [self.slack.account(f"person {number}") for number in range(count)]

    @asynccontextmanager
    async def services(self, count: int = 1) -> AsyncIterator[list[Service]]:
        services = [Service(self._settings) for _ in range(count)]
        try:
            for service in services:
                await service.start()
            self.slack.webhook = services[0].url + WEBHOOK
            yield services
        finally:
            for service in services:
                await service.kill()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Threadline]:
        async with open_threadline(settings=load(self._settings, environ={})) as threadline:
            yield threadline


@asynccontextmanager
async def ground(database: str, settings: Path, *, agent: str, people: int) -> AsyncIterator[Ground]:
    """A database with credentials and linked people."""
    async with FakeSlack() as slack:
        words: dict[str, Any] = {"database": database, "agent": agent, "key": new_key(), "api": slack.api}
        await asyncio.to_thread(settings.write_text, _SETTINGS.format(**words))
        found = Ground(slack, settings)
        async with found.opened() as threadline:
            await threadline.messaging.credentials.put(ADMIN, "slack", slack.secrets)
            await _link(threadline, found.people(people))
        yield found


async def _link(threadline: Threadline, people: Sequence[str]) -> None:
    for person in people:
        await threadline.messaging.links.put(ADMIN, "slack", person, person, revoked=False)

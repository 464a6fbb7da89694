"""The same world with the bot over HTTP: a service, and a bot with a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.client.conftest import IMPATIENT
from tests.matrix.bot_fixtures import World, living
from tests.matrix.synapse import Synapse
from tests.service.token_clients import token_for
from threadline.bootstrap import Threadline
from threadline.client import connect
from threadline.matrix.bot import Bot
from threadline.matrix.build import remote_bot
from threadline.service.app import build_app
from threadline.service.process.server import Server, listen
from threadline.settings import ServiceSettings

IN_PROCESS, OVER_HTTP = "in process", "over http"

both_ways = pytest.mark.parametrize("world", [IN_PROCESS, OVER_HTTP], indirect=True)
over_http = pytest.mark.parametrize("world", [OVER_HTTP], indirect=True)


class RemoteWorld(World):
    """`running` starts the service and the bot; each can also be started alone."""

    def __init__(self, synapse: Synapse, folder: Path, stack: AsyncExitStack) -> None:
        super().__init__(synapse, folder, stack)
        service = ServiceSettings(authentication=True, heartbeat_seconds=0.05, recovery_seconds=0.05, grace_seconds=0.1)
        self.settings = msgspec.structs.replace(self.settings, service=service)
        self.token: str | None = None
        self.port = 0

    def lose_database(self) -> None:
        super().lose_database()
        self.token = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Threadline]:
        """The service, on the same address each time."""
        async with self.open() as threadline:
            self.token = self.token or await token_for(threadline, "bot", acts_for_users=True)
            listening = listen("127.0.0.1", self.port)
            self.port = listening.getsockname()[1]
            server = Server(build_app(threadline), grace_seconds=0.1)
            running = asyncio.create_task(server.serve(sockets=[listening]))
            await server.ready.wait()
            try:
                yield threadline
            finally:
                server.should_exit = True
                await running

    @asynccontextmanager
    async def bot(self) -> AsyncIterator[Bot]:
        """A life of the bot."""
        async with (
            connect(self.url, token=self.token, retry=IMPATIENT) as client,
            remote_bot(client, self.settings) as bot,
            living(bot),
        ):
            yield bot

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Bot]:
        async with self.serving(), self.bot() as bot:
            yield bot

"""A real homeserver, a bot that runs in the test's own loop, and people who talk to it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.matrix.people import PATIENCE, MatrixUser
from tests.matrix.synapse import NoWheel, Synapse, shared_server
from threadline.agents.function import as_agent
from threadline.bootstrap import Threadline, open_store
from threadline.clock import SystemClock
from threadline.core.errors import AgentFailed
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.matrix.bot import Bot
from threadline.matrix.running import build_bot
from threadline.settings import MatrixSettings, Settings
from threadline.usecases.running import Timing

TIMING = Timing(lease_seconds=1.0, flush_seconds=0.02, wait_seconds=0.05)


class Parrot:
    """An agent that says how many questions it was shown and repeats the last; some words make it do other things."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        asked = [plain_text(message.parts) for message in prompt.messages if message.role == "user"]
        if asked[-1] == "fail":
            raise AgentFailed("the parrot is ill")
        if asked[-1] == "long":
            yield "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(40))
            return
        yield f"{len(asked)}. "
        await self.gate.wait()
        yield f"You said: {asked[-1]}"


@pytest.fixture(scope="session")
def synapse() -> Synapse:
    try:
        return shared_server()
    except NoWheel as exc:
        pytest.skip(str(exc))


class World:
    """One bot, and whoever joins."""

    def __init__(self, synapse: Synapse, folder: Path, stack: AsyncExitStack) -> None:
        self.synapse = synapse
        self.folder = folder
        self.stack = stack
        self.tag = secrets.token_hex(4)
        self.parrot = Parrot()
        password = secrets.token_hex(8)
        self.bot_id = synapse.register(f"bot-{self.tag}", password)
        self.matrix = MatrixSettings(
            homeserver=synapse.url,
            user=self.bot_id,
            password=password,
            folder=str(folder / "device"),
            auto_link=True,
            edit_seconds=0.2,
            recovery_seconds=0.2,
            sync_seconds=10.0,
        )
        self.settings = Settings(database=str(folder / "threadline.db"), agent="parrot", matrix=self.matrix)
        self.threadline: Threadline

    async def person(self, name: str, **more: Any) -> MatrixUser:
        return await self.stack.enter_async_context(MatrixUser(self.synapse, f"{name}-{self.tag}", **more))

    def change(self, **matrix: Any) -> None:
        self.matrix = msgspec.structs.replace(self.matrix, **matrix)
        self.settings = msgspec.structs.replace(self.settings, matrix=self.matrix)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Bot]:
        """A life of the bot, ended in good order."""
        store = await open_store(self.settings, SystemClock())
        agents = {"parrot": as_agent(self._answer)}
        async with Threadline(store, self.settings, SystemClock(), agents=agents, timing=TIMING) as self.threadline:
            bot = build_bot(self.threadline)
            task = asyncio.create_task(bot.run())
            ready = asyncio.create_task(bot.ready.wait())
            try:
                await asyncio.wait({task, ready}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    await task
                yield bot
            finally:
                ready.cancel()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _answer(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        async for each in self.parrot(prompt):
            yield each

    async def room_with(self, user: MatrixUser, **more: Any) -> str:
        """A room of the user's in which the bot has said hello."""
        room_id = await user.create_room(self.bot_id, **more)
        await user.hear(room_id, self.bot_id, "You can write here")
        return room_id


@pytest.fixture
async def world(synapse: Synapse, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(synapse, tmp_path, stack)

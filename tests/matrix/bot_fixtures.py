"""Fixtures for the bot: a service, a bot that runs in the test's event loop, and users who talk to it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.matrix.people import PATIENCE, MatrixUser
from tests.matrix.synapse import Synapse
from threadline.agents.function import as_agent
from threadline.bootstrap import Threadline
from threadline.clock import SystemClock
from threadline.core.channels import Binding
from threadline.core.errors import AgentFailed
from threadline.core.parts import plain_text
from threadline.core.prompts import Prompt
from threadline.core.threads import Scope
from threadline.databases import open_store
from threadline.matrix.bot import Bot
from threadline.matrix.build import build_bot
from threadline.messaging.rooms import room_of, space_place
from threadline.settings import MatrixSettings, Settings
from threadline.turns.leases import Timing

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
        if asked[-1] == "chatty":
            for number in range(20):
                yield f"word{number} "
                # Longer than an edit period, so that each word is an edit.
                await asyncio.sleep(0.25)
            return
        if asked[-1] == "long":
            yield "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(70))
            return
        yield f"{len(asked)}. "
        await self.gate.wait()
        yield f"You said: {asked[-1]}"


class World:
    """One bot and the users who join."""

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
        self.agents: dict[str, Any] = {"parrot": as_agent(self._answer)}
        self.threadline: Threadline

    async def person(self, name: str, **more: Any) -> MatrixUser:
        return await self.stack.enter_async_context(MatrixUser(self.synapse, f"{name}-{self.tag}", **more))

    def change(self, **matrix: Any) -> None:
        self.matrix = msgspec.structs.replace(self.matrix, **matrix)
        self.settings = msgspec.structs.replace(self.settings, matrix=self.matrix)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Threadline]:
        store = await open_store(self.settings, SystemClock())
        async with Threadline(
            store, self.settings, SystemClock(), agents=self.agents, timing=TIMING
        ) as self.threadline:
            yield self.threadline

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Bot]:
        """A life of the bot, ended in good order."""
        async with self.open() as threadline, living(build_bot(threadline)) as bot:
            yield bot

    def lose_database(self) -> None:
        for file in self.folder.glob("threadline.db*"):
            file.unlink()

    async def bindings(self, user_id: str) -> list[Binding]:
        """The user's rooms and space; places are room ids."""
        session = self.threadline.store.scoped(Scope("local", user_id))
        bound = await session.bindings(surface="matrix")
        return [msgspec.structs.replace(each, place=room_of(each) or "") for each in bound]

    async def change_space(self, user_id: str, **metadata: Any) -> None:
        """Changes what the binding of the user's space says."""
        session = self.threadline.store.scoped(Scope("local", user_id))
        space = await session.binding("matrix", space_place(user_id))
        assert space is not None
        clean = self.threadline.sealer.json({**space.metadata, **metadata})
        await session.bind("matrix", space.place, space.thread_id, metadata=clean)

    async def _answer(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        async for each in self.parrot(prompt):
            yield each

    async def room_with(self, user: MatrixUser, **more: Any) -> str:
        """A room of the user's in which the bot has said hello."""
        room_id = await user.create_room(self.bot_id, **more)
        await user.hear(room_id, self.bot_id, "You can write here")
        return room_id


@asynccontextmanager
async def living(bot: Bot) -> AsyncIterator[Bot]:
    """A bot that listens."""
    task, ready = asyncio.create_task(bot.run()), asyncio.create_task(bot.ready.wait())
    try:
        await asyncio.wait({task, ready}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield bot
    finally:
        ready.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

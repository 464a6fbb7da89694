"""The Matrix bot on a real homeserver: how soon a reply is seen, many rooms at once, and how long a start takes.

A reply is measured against the least a homeserver can do for it: one person writes and another sees it, and that one
writes back and the first sees it. The bot's work is what it takes beyond that.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from bench.arena import Arena
from bench.budgets import MATRIX_CROWD, MATRIX_REPLY, MATRIX_START, MATRIX_WRONG, OURS
from bench.measure import interleave
from bench.results import Row, timings
from tests.matrix.people import MatrixUser
from tests.matrix.synapse import Synapse, shared_server
from threadline.bootstrap import Threadline
from threadline.clock import SystemClock
from threadline.core.events import Event, TextDelta
from threadline.core.prompts import Prompt
from threadline.databases import open_store
from threadline.matrix.bot import Bot
from threadline.matrix.build import build_bot
from threadline.matrix.events_in import ROOM_STATE
from threadline.ports import AgentServices
from threadline.settings import MatrixSettings, Settings

_PEOPLE = "two people, there and back"
_PATIENCE = 600.0


class Ground:
    """A homeserver, a bot's account on it, and people."""

    def __init__(self, arena: Arena, synapse: Synapse, stack: AsyncExitStack) -> None:
        self.synapse = synapse
        self._arena = arena
        self._stack = stack
        self._tag = secrets.token_hex(4)
        password = secrets.token_hex(8)
        self.bot_id = synapse.register(f"bot-{self._tag}", password)
        self.matrix = MatrixSettings(
            homeserver=synapse.url,
            user=self.bot_id,
            password=password,
            folder=str(arena.file("device")),
            auto_link=True,
        )

    async def person(self, name: str) -> MatrixUser:
        return await self._stack.enter_async_context(MatrixUser(self.synapse, f"{name}-{self._tag}"))

    @asynccontextmanager
    async def running(self, database: str) -> AsyncIterator[Bot]:
        settings = Settings(database=str(self._arena.file(database)), agent="echo", matrix=self.matrix)
        store = await open_store(settings, SystemClock())
        async with Threadline(store, settings, SystemClock(), agents={"echo": _Echo()}) as threadline:
            bot = build_bot(threadline)
            task = asyncio.create_task(bot.run())
            try:
                await asyncio.wait_for(bot.ready.wait(), _PATIENCE)
                yield bot
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class _Echo:
    """An agent that costs nothing."""

    async def run(self, prompt: Prompt, services: AgentServices) -> AsyncIterator[Event]:
        yield TextDelta("answered")


async def rooms(arena: Arena) -> list[Row]:
    async with AsyncExitStack() as stack:
        ground = Ground(arena, await asyncio.to_thread(shared_server), stack)
        return [*await _replies(arena, ground), *await _crowd(arena, ground), *await _start(arena, ground)]


async def _replies(arena: Arena, ground: Ground) -> list[Row]:
    rounds, repeats = arena.sized((10, 20), (2, 3))
    alice, bob = await ground.person("alice"), await ground.person("bob")
    shared = await alice.create_room(bob.id)
    await bob.until(lambda: shared in bob.invited)
    await bob.join(shared)
    async with ground.running("replies"):
        room = await _room(ground, alice)

        async def ask() -> None:
            await alice.ask(room, ground.bot_id, "Hello")

        async def there_and_back() -> None:
            seen = len(bob.told(shared, alice.id))
            answering = asyncio.create_task(_answer(bob, shared, alice.id, seen))
            await alice.ask(shared, bob.id, "Hello")
            await answering

        taken = await interleave({_PEOPLE: there_and_back, OURS: ask}, rounds=rounds, repeats=repeats)
    return timings(MATRIX_REPLY, taken, reference=_PEOPLE)


async def _answer(user: MatrixUser, room: str, asker: str, seen: int) -> None:
    await user.until(lambda: len(user.told(room, asker)) > seen)
    await user.say(room, "answered")


async def _room(ground: Ground, user: MatrixUser) -> str:
    room_id = await user.create_room(ground.bot_id)
    await user.hear(room_id, ground.bot_id, "You can write here")
    return room_id


async def _crowd(arena: Arena, ground: Ground) -> list[Row]:
    """Everyone writes in all rooms at once; each room is answered in order."""
    count, each = arena.sized((50, 5), (5, 3))
    carol = await ground.person("carol")
    async with ground.running("crowd"):
        found = [await _room(ground, carol) for _ in range(count)]
        began = time.perf_counter()
        await asyncio.gather(*(_write(carol, room, each) for room in found))
        async with asyncio.timeout(_PATIENCE):
            for room in found:
                await _answered(carol, room, ground.bot_id, each)
        seconds = time.perf_counter() - began
    wrong = sum(abs(len(carol.told(room, ground.bot_id)) - 1 - each) for room in found)
    at = f"{count} rooms, {each} messages each"
    return [
        Row(MATRIX_CROWD.name, OURS, "messages/s", count * each / seconds, at=at),
        Row(MATRIX_WRONG.name, OURS, "messages", wrong, at=at, samples=count * each),
    ]


async def _answered(user: MatrixUser, room: str, by: str, count: int) -> None:
    """Answers come one by one, and each is waited for on its own: many rooms may need longer than one person waits."""
    for number in range(count):
        await user.until(partial(_sees, user, room, by, number + 1))


def _sees(user: MatrixUser, room: str, by: str, count: int) -> bool:
    return len(user.told(room, by)) > count


async def _write(user: MatrixUser, room: str, count: int) -> None:
    for number in range(count):
        await user.say(room, f"message {number}")


async def _start(arena: Arena, ground: Ground) -> list[Row]:
    """A start with a lost database, where each room is bound again; and the next, where everything agrees."""
    count = arena.sized(500, 10)
    dora = await ground.person("dora")
    async with ground.running("first") as bot:
        for number in range(count):
            told = {"platform_chat_id": f"chat-{number}", "matrix_id": dora.id, "label": f"C{number}"}
            state = [{"type": ROOM_STATE, "state_key": "", "content": told}]
            await bot.homeserver.create_room(f"room {number}", invite=[], state=state)
    rows = []
    for at in (f"{count} rooms, database lost", f"{count} rooms, all in order"):
        began = time.perf_counter()
        async with ground.running("second"):
            rows.append(Row(MATRIX_START.name, OURS, "s", time.perf_counter() - began, at=at))
    return rows

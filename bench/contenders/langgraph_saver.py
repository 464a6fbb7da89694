"""Checkpointers of LangGraph, used as a graph uses them: a checkpoint after each step, then the writes of its task.

What is stored are LangGraph's own messages and a counter, so that every saver serialises the same. `growing` adds a
message at each step, as chats do; otherwise the state keeps its size, as after summaries.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

import threadline
from bench.workload import Turn, turns
from threadline.adapters.langgraph import ThreadlineSaver

STEADY_MESSAGES = 20


class CheckpointedThread:
    def __init__(self, saver: BaseCheckpointSaver[Any], *, growing: bool) -> None:
        self._saver = saver
        self._growing = growing
        self._config: dict[str, Any] = {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}}
        self._latest: dict[str, Any] = self._config
        self._steps = itertools.count()
        self._texts = itertools.cycle(turns(200))
        self._messages: list[AnyMessage] = []
        self._versions: dict[str, Any] = {}
        if not growing:
            self._messages = [self._message(number) for number in range(STEADY_MESSAGES)]

    async def step(self) -> None:
        number = next(self._steps)
        changed = ["step"]
        said: list[AnyMessage] = []
        if self._growing or number == 0:
            changed.append("messages")
        if self._growing:
            said = [self._message(number)]
            self._messages = [*self._messages, *said]
        new = {name: self._saver.get_next_version(self._versions.get(name), None) for name in changed}
        self._versions |= new
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=number))
        checkpoint["channel_values"] = {"messages": self._messages, "step": number}
        checkpoint["channel_versions"] = dict(self._versions)
        metadata: Any = {"source": "loop", "step": number, "parents": {}}
        self._latest = await self._saver.aput(self._latest, checkpoint, metadata, new)
        writes = [("messages", said), ("step", number + 1), ("branch:to:answer", None)]
        await self._saver.aput_writes(self._latest, writes, uuid.uuid4().hex)

    async def read_latest(self) -> object:
        found = await self._saver.aget_tuple(self._config)
        assert found is not None
        assert len(found.checkpoint["channel_values"]["messages"]) == len(self._messages)
        return found

    def _message(self, number: int) -> AnyMessage:
        turn: Turn = next(self._texts)
        if number % 2:
            return AIMessage(turn.answer, id=uuid.uuid4().hex)
        return HumanMessage(turn.question, id=uuid.uuid4().hex)


class Saver:
    """A checkpointer, how to close it, and where it stores."""

    def __init__(self, saver: BaseCheckpointSaver[Any], place: str, close: Callable[[], Awaitable[None]]) -> None:
        self.place = place
        self.close = close
        self._saver = saver

    async def thread(self, steps: int, *, growing: bool) -> CheckpointedThread:
        thread = CheckpointedThread(self._saver, growing=growing)
        for _ in range(steps):
            await thread.step()
        return thread


async def theirs_on_sqlite(path: Path) -> Saver:
    stack = AsyncExitStack()
    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(path)))
    return Saver(saver, str(path), stack.aclose)


async def theirs_on_postgres(dsn: str) -> Saver:
    stack = AsyncExitStack()
    saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(dsn))
    await saver.setup()
    return Saver(saver, dsn, stack.aclose)


async def ours(place: str) -> Saver:
    opened = await threadline.open(place)
    return Saver(ThreadlineSaver(opened.as_user()), place, opened.close)

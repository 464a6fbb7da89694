"""OpenAI Agents SDK: SQLiteSession, AdvancedSQLiteSession and SQLAlchemySession.

A turn is four items (question, call, output, answer) given to one `add_items`; the runner itself would make at least
two calls of it. Sessions commit durably: WAL with SQLite's default, synchronous FULL.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from agents import TResponseInputItem
from agents.extensions.memory import AdvancedSQLiteSession, SQLAlchemySession
from agents.memory import Session, SQLiteSession
from sqlalchemy.ext.asyncio import create_async_engine

import threadline
from bench.workload import Turn
from threadline.adapters.openai_agents import ThreadlineSession

ITEMS_PER_TURN = 4


class AgentsSessions:
    """A session object is one thread, kept open as an application would keep it."""

    def __init__(self, make: Callable[[str], Session], close: Callable[[], Any] | None = None) -> None:
        self._make = make
        self._close = close
        self._sessions: dict[str, Session] = {}

    async def start(self, turns: Sequence[Turn]) -> str:
        thread_id = uuid.uuid4().hex
        self._sessions[thread_id] = self._make(thread_id)
        for first in range(0, len(turns), 250):
            chunk = turns[first : first + 250]
            await self._sessions[thread_id].add_items([item for turn in chunk for item in _items(turn)])
        return thread_id

    async def append(self, thread_id: str, turn: Turn) -> None:
        await self._sessions[thread_id].add_items(_items(turn))

    async def last_turns(self, thread_id: str, count: int) -> list[TResponseInputItem]:
        return await self._sessions[thread_id].get_items(limit=count * ITEMS_PER_TURN)

    async def everything(self, thread_id: str) -> list[TResponseInputItem]:
        """What a runner reads before each run."""
        return await self._sessions[thread_id].get_items()

    async def close(self) -> None:
        for session in self._sessions.values():
            if isinstance(session, SQLiteSession):
                session.close()
        if self._close is not None:
            await self._close()


async def sqlite(path: Path) -> AgentsSessions:
    return AgentsSessions(lambda thread_id: SQLiteSession(thread_id, path))


async def advanced_sqlite(path: Path) -> AgentsSessions:
    return AgentsSessions(
        lambda thread_id: AdvancedSQLiteSession(session_id=thread_id, db_path=path, create_tables=True)
    )


async def ours(place: str) -> AgentsSessions:
    """The SDK with its sessions in Threadline."""
    opened = await threadline.open(place)
    return AgentsSessions(lambda thread_id: ThreadlineSession(thread_id, opened.as_user()), opened.close)


async def sqlalchemy_sqlite(path: Path) -> AgentsSessions:
    return _sqlalchemy(f"sqlite+aiosqlite:///{path}")


async def sqlalchemy_postgres(dsn: str) -> AgentsSessions:
    return _sqlalchemy(dsn.replace("postgresql://", "postgresql+asyncpg://"))


def _sqlalchemy(url: str) -> AgentsSessions:
    engine = create_async_engine(url)
    return AgentsSessions(
        lambda thread_id: SQLAlchemySession(thread_id, engine=engine, create_tables=True), engine.dispose
    )


def _items(turn: Turn) -> list[TResponseInputItem]:
    call = {
        "type": "function_call",
        "call_id": turn.call_id,
        "name": "web_search",
        "arguments": json.dumps(turn.tool_input),
    }
    output = {"type": "function_call_output", "call_id": turn.call_id, "output": json.dumps(turn.tool_output)}
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": turn.answer, "annotations": []}],
    }
    return cast(list[TResponseInputItem], [{"role": "user", "content": turn.question}, call, output, answer])

"""Agno: SqliteDb and PostgresDb.

A turn is one run with four messages: the two writes its agent makes at the end of a run, the run's row and the
session's. Reading takes the last runs by `runs_limit`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agno.db.base import SessionType
from agno.db.postgres import PostgresDb
from agno.db.sqlite import SqliteDb
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.session import AgentSession

from bench.workload import Turn

AGENT = "agent"


class AgnoDb:
    def __init__(self, db: SqliteDb | PostgresDb) -> None:
        self._db = db
        self._runs: dict[str, int] = {}

    async def start(self, turns: Sequence[Turn]) -> str:
        thread_id = uuid.uuid4().hex
        self._runs[thread_id] = 0
        self._db.upsert_session(_session(thread_id))
        for turn in turns:
            await self.append(thread_id, turn)
        return thread_id

    async def append(self, thread_id: str, turn: Turn) -> None:
        self._db.upsert_session(_session(thread_id))
        self._db.upsert_run(_run(thread_id, turn), session_id=thread_id, run_index=self._runs[thread_id])
        self._runs[thread_id] += 1

    async def last_turns(self, thread_id: str, count: int) -> list[Any]:
        session = self._db.get_session(thread_id, SessionType.AGENT, runs_limit=count)
        assert isinstance(session, AgentSession)
        assert session.runs is not None
        return session.runs

    async def close(self) -> None:
        self._db.close()


async def sqlite(path: Path) -> AgnoDb:
    return AgnoDb(SqliteDb(db_file=str(path)))


async def postgres(dsn: str) -> AgnoDb:
    return AgnoDb(PostgresDb(db_url=dsn.replace("postgresql://", "postgresql+psycopg://")))


def _session(thread_id: str) -> AgentSession:
    now = int(time.time())
    return AgentSession(
        session_id=thread_id,
        agent_id=AGENT,
        agent_data={"name": AGENT},
        session_data={},
        created_at=now,
        updated_at=now,
    )


def _run(thread_id: str, turn: Turn) -> RunOutput:
    function = {"name": "web_search", "arguments": json.dumps(turn.tool_input)}
    call = {"id": turn.call_id, "type": "function", "function": function}
    messages = [
        Message(role="user", content=turn.question),
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", tool_call_id=turn.call_id, content=json.dumps(turn.tool_output)),
        Message(role="assistant", content=turn.answer),
    ]
    return RunOutput(
        run_id=uuid.uuid4().hex,
        session_id=thread_id,
        agent_id=AGENT,
        content=turn.answer,
        messages=messages,
        created_at=int(time.time()),
    )

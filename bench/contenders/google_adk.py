"""Google ADK: SqliteSessionService, and DatabaseSessionService on PostgreSQL.

A turn is four events (question, call, response, answer). The API takes one event a call and commits each, and so
does its runner.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, DatabaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import threadline
from bench.workload import Turn
from threadline.adapters.adk import ThreadlineSessionService

APP, USER = "bench", "ada"
EVENTS_PER_TURN = 4


class AdkSessions:
    def __init__(self, service: BaseSessionService, close: Callable[[], Awaitable[None]]) -> None:
        self._service = service
        self.close = close
        self._sessions: dict[str, Session] = {}

    async def start(self, turns: Sequence[Turn]) -> str:
        session = await self._service.create_session(app_name=APP, user_id=USER)
        self._sessions[session.id] = session
        for turn in turns:
            await self.append(session.id, turn)
        return session.id

    async def append(self, thread_id: str, turn: Turn) -> None:
        for event in _events(turn):
            await self._service.append_event(self._sessions[thread_id], event)

    async def append_event(self, thread_id: str, turn: Turn) -> None:
        """The answer alone. The state of the session changes with it, as it does with an agent's `output_key`."""
        event = _events(turn)[-1]
        event.actions.state_delta["answer"] = turn.answer[:100]
        await self._service.append_event(self._sessions[thread_id], event)

    async def last_turns(self, thread_id: str, count: int) -> list[Event]:
        session = await self._service.get_session(
            app_name=APP,
            user_id=USER,
            session_id=thread_id,
            config=GetSessionConfig(num_recent_events=count * EVENTS_PER_TURN),
        )
        assert session is not None
        return session.events


async def sqlite(path: Path) -> AdkSessions:
    service = SqliteSessionService(str(path))
    return AdkSessions(service, service.close)  # type: ignore[attr-defined]


async def postgres(dsn: str) -> AdkSessions:
    service = DatabaseSessionService(dsn.replace("postgresql://", "postgresql+asyncpg://"))
    return AdkSessions(service, service.close)


async def ours(place: str) -> AdkSessions:
    """The ADK with its sessions in Threadline."""
    opened = await threadline.open(place)
    return AdkSessions(ThreadlineSessionService(opened), opened.close)


def _events(turn: Turn) -> list[Event]:
    call = types.FunctionCall(id=turn.call_id, name="web_search", args=turn.tool_input)
    response = types.FunctionResponse(id=turn.call_id, name="web_search", response=turn.tool_output)
    invocation = uuid.uuid4().hex
    return [
        _event(invocation, "user", "user", types.Part(text=turn.question)),
        _event(invocation, "agent", "model", types.Part(function_call=call)),
        _event(invocation, "agent", "user", types.Part(function_response=response)),
        _event(invocation, "agent", "model", types.Part(text=turn.answer)),
    ]


def _event(invocation: str, author: str, role: str, part: types.Part) -> Event:
    content = types.Content(role=role, parts=[part])
    return Event(invocation_id=invocation, author=author, content=content, timestamp=time.time())

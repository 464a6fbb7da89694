"""A pytest plugin for the own tests of OpenAI's Agents SDK: `SQLiteSession` is a session of Threadline in them.

It has the constructor of the SDK's class. Sessions with the same path share a database, `:memory:` is one of its own.
The SDK's class is replaced where its tests import it from, before they do.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session as sdk

import threadline
from threadline.adapters.openai_agents import ThreadlineSession

_open: dict[str, threadline.SyncThreadline] = {}
_lock = threading.Lock()


class SQLiteSession(ThreadlineSession):
    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        self.db_path, self._own = db_path, None
        if str(db_path) == ":memory:":
            self._own = database = threadline.open_sync(":memory:").__enter__()
        else:
            with _lock:
                # Beside the file that a test looks at: it may have tables of the SDK.
                database = _open.get(str(db_path)) or threadline.open_sync(f"{db_path}.threadline").__enter__()
                _open[str(db_path)] = database
        super().__init__(session_id, database.as_user("ada"), session_settings=session_settings)

    def close(self) -> None:
        if self._own is not None:
            self._own.__exit__(None, None, None)
            self._own = None


sdk.SQLiteSession = SQLiteSession
agents.SQLiteSession = SQLiteSession
agents.memory.SQLiteSession = SQLiteSession


def pytest_unconfigure() -> None:
    for database in _open.values():
        database.__exit__(None, None, None)

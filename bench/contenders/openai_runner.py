"""OpenAI Agents SDK: a whole turn by its runner, with a model that answers at once and a SQLiteSession.

Tracing is off, because it would send what was said to a server.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.memory import SQLiteSession
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from bench.contenders.openai_agents import AgentsSessions
from bench.workload import Turn


class InstantModel(Model):
    def __init__(self, text: str) -> None:
        self._text = text

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        said = ResponseOutputText(type="output_text", text=self._text, annotations=[])
        message = ResponseOutputMessage(
            id=uuid.uuid4().hex, type="message", role="assistant", status="completed", content=[said]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


class AgentsRunner:
    """One thread with a history, and questions asked in it. The whole history goes to the model, as it comes."""

    def __init__(self, path: Path, text: str) -> None:
        set_tracing_disabled(True)
        self._path = path
        self._agent = Agent(name="instant", model=InstantModel(text))

    async def start(self, turns: list[Turn]) -> None:
        self._session = SQLiteSession("thread", self._path)
        sessions = AgentsSessions(lambda _: self._session)
        await sessions.start(turns)

    async def ask(self, question: str) -> object:
        return (await Runner.run(self._agent, question, session=self._session)).final_output

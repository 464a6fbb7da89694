"""A program that asks with a slow agent, sends one more message with the policy `steer`, and is killed.

Run by `test_steered_message_crashes.py` with a database, a tenant, a thread, a surface and what it hangs in: `tool`
(the message waits) or `model` (it was taken in, and the model is answering). It prints `ready` when it may be killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import threadline
from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings
from threadline.agents.tools import tool
from threadline.core.events import Event, Finish, TextDelta, ToolCall
from threadline.core.parts import ToolPart, plain_text
from threadline.core.prompts import PromptMessage
from threadline.core.turns import Surface
from threadline.settings import Settings

QUESTION, LATE = "What is there?", "Only the left side."


class Describer:
    """Looks once, then says what it was told by the user. With a gate, it waits there."""

    def __init__(self, tool_gate: asyncio.Event | None = None, model_gate: asyncio.Event | None = None) -> None:
        self.looking, self.answering = asyncio.Event(), asyncio.Event()
        self._tool_gate, self._model_gate = tool_gate, model_gate

    def agent(self) -> LoopAgent:
        @tool
        async def look() -> str:
            """Looks."""
            self.looking.set()
            if self._tool_gate is not None:
                await self._tool_gate.wait()
            return "a studio"

        return LoopAgent(self, [look])

    async def round(
        self, messages: Sequence[PromptMessage], tools: Any, settings: RoundSettings
    ) -> AsyncGenerator[Event]:
        said = [part for message in messages for part in message.parts]
        if not any(isinstance(part, ToolPart) for part in said):
            yield ToolCall(f"look{len(messages)}", "look", {})
            yield Finish("tool-calls")
            return
        told = [message for message in messages if message.role == "user"][-1]
        yield TextDelta(f"Told: {plain_text(told.parts)}")
        if self._model_gate is not None:
            self.answering.set()
            await self._model_gate.wait()
        yield Finish()

    async def close(self) -> None:
        return None


def settings_of(database: str, tenant_id: str) -> Settings:
    return Settings(database=database, tenant=tenant_id, agent="studio")


async def main(database: str, tenant_id: str, thread_id: str, surface: Surface, hangs_in: str) -> None:
    never = asyncio.Event()
    gate = asyncio.Event()
    describer = Describer(*((never, None) if hangs_in == "tool" else (gate, never)))
    async with threadline.open(settings=settings_of(database, tenant_id), agents={"studio": describer.agent()}) as tl:
        thread = await tl.as_user(surface=surface).thread(thread_id)
        await thread.ask(QUESTION, key="k1").accept()
        await describer.looking.wait()
        await thread.ask(LATE, key="k2", policy="steer").accept()
        if hangs_in == "model":
            gate.set()
            await describer.answering.wait()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await never.wait()


if __name__ == "__main__":
    database, tenant_id, thread_id, surface, hangs_in = sys.argv[1:]
    asyncio.run(main(database, tenant_id, thread_id, "slack" if surface == "slack" else "api", hangs_in))

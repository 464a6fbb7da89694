"""Compaction: how many tokens a prompt has after many turns, with a window that they do not fit.

Tokens are estimated and the model is scripted, so the numbers are the same on every machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import threadline
from bench.arena import Arena
from bench.budgets import COMPACTED, COMPACTED_LARGEST, OURS
from bench.results import Row
from bench.workload import turns
from threadline.agents.loop import LoopAgent
from threadline.agents.models import RoundSettings, ToolSpec
from threadline.core.events import Event, Finish, TextDelta
from threadline.core.parts import plain_text
from threadline.core.prompts import PromptMessage
from threadline.core.windows import Window
from threadline.settings import Settings, WindowSettings

WINDOW = 8_000
_SUMMARY = "We chose Lisbon for the journey in May, because the flights are cheap. The hotel is still to be booked."


class Summariser:
    """Answers a question with its text, and a request for a summary with a short one."""

    async def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        said = plain_text(messages[-1].parts)
        yield TextDelta(_SUMMARY if "<transcript>" in said else said)
        yield Finish()

    async def close(self) -> None:
        """Nothing to close."""


async def compaction(arena: Arena) -> list[Row]:
    """A thread of a thousand turns with a model that writes summaries: the prompt of the last turns against the window
    and against the first tenth. It must not grow, and must never exceed the window."""
    count = arena.sized(1_000, 100)
    settings = Settings(windows=WindowSettings(reading=Window(tokens=WINDOW)))
    agents = {"talker": LoopAgent(Summariser())}
    tokens: list[int] = []
    async with threadline.open(arena.file("compaction"), settings=settings, agents=agents) as tl:
        thread = await tl.as_user("bench").create_thread(agent_id="talker")
        for turn in turns(count):
            ended = await thread.ask(turn.question + turn.answer).ended()
            tokens.append(ended.prompt_tokens or 0)
    early, late = max(tokens[: count // 2]), max(tokens[count // 2 :])
    at = f"{count:,} turns"
    return [
        Row(COMPACTED.name, OURS, "tokens", late, at=at, samples=count, ratio=late / early, against="the first half"),
        Row(COMPACTED_LARGEST.name, OURS, "tokens", max(tokens), at=at, samples=count),
    ]

"""The port to whatever writes summaries of older messages."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from threadline.core.summaries import SummaryLimits
from threadline.core.threads import Scope, Thread
from threadline.core.turns import Surface


class SummaryTask(NamedTuple):
    """What to summarise, and for whom. `agent_id` is the agent that answered last, None if that is not known."""

    scope: Scope
    thread: Thread
    agent_id: str | None
    surface: Surface
    earlier: str | None
    """The summary of everything before the transcript. The new one takes its place."""
    transcript: str
    limits: SummaryLimits


class WrittenSummary(NamedTuple):
    text: str
    model: str | None


class Summariser(Protocol):
    async def summarise(self, task: SummaryTask) -> WrittenSummary | None:
        """One text for the earlier summary and the transcript, no longer than the limits allow. None if no model can
        write one, or if what it wrote cannot be used: then the thread gets an extract."""
        ...

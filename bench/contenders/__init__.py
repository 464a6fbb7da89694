"""What is measured: Threadline, the bare drivers and other stores, behind one small protocol.

Everyone starts from the same plain Python values and is done when the turn is durable, in the fewest calls their own
API allows and with the settings they come with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bench.workload import Turn


class Contender(Protocol):
    async def start(self, turns: Sequence[Turn]) -> str:
        """A thread that holds these turns already; its id. Never measured, so it may take a short way."""
        ...

    async def append(self, thread_id: str, turn: Turn) -> object:
        """Returns when the turn would survive a power cut."""
        ...

    async def last_turns(self, thread_id: str, count: int) -> Sequence[object]:
        """The newest turns, oldest first, as whatever the contender gives its users."""
        ...

    async def close(self) -> None: ...

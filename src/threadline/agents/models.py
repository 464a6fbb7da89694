"""The seam between the loop and a provider: one round in, events out.

A `Model` knows one provider's API and nothing else: no tools are run here, no rounds counted, nothing stored. The loop
hands it the whole prompt each round, in the house's own parts, and the adapter spells it out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from threadline.core.events import Event
from threadline.core.prompts import PromptMessage


class ToolSpec(NamedTuple):
    """What a model is told about a tool. `schema` is the JSON Schema of an object."""

    name: str
    description: str
    schema: dict[str, Any]


class RoundSettings(msgspec.Struct, frozen=True):
    """What may differ from round to round; what stays is the model's own."""

    model: str | None = None
    turn_id: str | None = None


class Model(Protocol):
    def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        """What the provider says next: text, reasoning, complete tool calls, usage, and a Finish at the end.

        If the last message is the assistant's, the round goes on with it: its tool calls all have results. AgentFailed
        where the provider fails, and where it breaks off without saying that it finished. Closing the iterator closes
        the connection."""
        ...

    async def close(self) -> None:
        """Gives connections back. Safe to call twice."""
        ...

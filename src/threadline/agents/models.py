"""The interface between the tool loop and a provider: one prompt in, the events of one round out.

A `Model` knows one provider's API and nothing else: it runs no tools, counts no rounds and stores nothing. It gets the
whole prompt every round, as Threadline's message parts, and translates it for the provider.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from threadline.core.events import Event
from threadline.core.model_options import ModelOptions
from threadline.core.prompts import PromptMessage


class ToolSpec(NamedTuple):
    """The description of a tool that a model gets. `schema` is the JSON Schema of an object."""

    name: str
    description: str
    schema: dict[str, Any]


class RoundSettings(msgspec.Struct, frozen=True):
    """What may differ between rounds; everything else is configured on the Model."""

    model: str | None = None
    turn_id: str | None = None
    response_format: dict[str, Any] | None = None
    options: ModelOptions = ModelOptions()


class Model(Protocol):
    def round(
        self, messages: Sequence[PromptMessage], tools: Sequence[ToolSpec], settings: RoundSettings
    ) -> AsyncGenerator[Event, None]:
        """The provider's next output: text, reasoning, complete tool calls, usage, and a Finish at the end.

        If the last message is the assistant's, the round continues it; all its tool calls have results. AgentFailed
        if the provider fails or ends its stream without a finish reason. Closing the iterator closes the
        connection."""
        ...

    async def close(self) -> None:
        """Closes connections. Safe to call twice."""
        ...

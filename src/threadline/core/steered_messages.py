"""Messages that a running turn took in: marked in its reply where that happened, shown to models in that place.

The message itself is in the log under its own id and turn; the marker contains only ids, so nothing is stored twice and
an agent cannot put words into a user's mouth. A log that was exported or branched needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from threadline.core.events import Data, Event
from threadline.core.parts import DataPart, Part
from threadline.core.prompts import PromptMessage

STEERED = "steered-message"
"""The name of the data part that marks where the message was taken in."""


class SteeredMessage(NamedTuple):
    """What an agent is given. `message_id` is what the marker in the reply names."""

    message_id: str
    parts: tuple[Part, ...]


def steered_marker(message_id: str, turn_id: str) -> Data:
    """`turn_id` is the turn that the message came with."""
    return Data(STEERED, {"messageId": message_id, "turnId": turn_id}, message_id)


def is_steered_marker(event: Event) -> bool:
    return isinstance(event, Data) and event.name == STEERED


def steered_message_ids(parts: Iterable[Part]) -> tuple[str, ...]:
    return tuple(str(part.id) for part in parts if isinstance(part, DataPart) and part.name == STEERED)


def steered_turn_ids(parts: Iterable[Part]) -> tuple[str, ...]:
    marked = (part.data for part in parts if isinstance(part, DataPart) and part.name == STEERED)
    return tuple(str(data.get("turnId")) for data in marked if isinstance(data, dict))


def after_marker(parts: Sequence[Part], turn_id: str) -> Sequence[Part]:
    """What was said after the message of this turn had been taken in."""
    for index, part in enumerate(parts):
        if turn_id in steered_turn_ids((part,)):
            return parts[index + 1 :]
    return parts


def split_at_steered(said: PromptMessage, messages: Mapping[str, tuple[Part, ...]]) -> tuple[PromptMessage, ...]:
    """The reply with the user's messages in the places where they were taken in. `messages` has their parts by id; one
    that it lacks is left out."""
    found: list[PromptMessage] = []
    begun = 0
    for index, part in enumerate(said.parts):
        parts = messages.get(str(part.id)) if isinstance(part, DataPart) and part.name == STEERED else None
        if parts is None:
            continue
        found += [PromptMessage(said.role, said.parts[begun:index])] if index > begun else []
        found.append(PromptMessage("user", parts))
        begun = index + 1
    if not found:
        return (said,)
    return (*found, PromptMessage(said.role, said.parts[begun:])) if begun < len(said.parts) else tuple(found)

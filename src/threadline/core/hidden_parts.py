"""Hidden messages and parts: what a user deleted from a log that keeps everything until it is purged.

A mark names a message by its place, or one part of it. Stores apply the marks whenever they read messages, so whatever
is built from messages does not contain them: prompts, lists, exports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from threadline.core.messages import Message

WHOLE = -1
"""In the place of a part: the whole message."""


class HiddenPart(NamedTuple):
    timeline_id: str
    seq: int
    part: int = WHOLE


def without_hidden(messages: Iterable[Message], marks: Mapping[tuple[str, int], Sequence[int]]) -> list[Message]:
    """The messages without those that are hidden, and without the hidden parts of the others. `marks` has the parts by
    timeline and seq."""
    found = []
    for message in messages:
        hidden = marks.get((message.timeline_id, message.seq))
        if hidden is None:
            found.append(message)
        elif WHOLE not in hidden:
            found.append(_without_parts(message, hidden))
    return found


def _without_parts(message: Message, hidden: Sequence[int]) -> Message:
    parts = msgspec.json.decode(message.parts_json, type=list[msgspec.Raw])
    kept = [part for number, part in enumerate(parts) if number not in hidden]
    return msgspec.structs.replace(message, parts_json=msgspec.json.encode(kept), hidden=tuple(sorted(hidden)))


def newest_of(messages: list[Message], turns: int) -> tuple[list[Message], bool]:
    """The messages from the `turns`-th last question on, and whether there are so many."""
    for place in range(len(messages) - 1, -1, -1):
        turns -= messages[place].role == "user"
        if turns == 0:
            return messages[place:], True
    return messages, False

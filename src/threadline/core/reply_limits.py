"""The limits of a reply: counted while an agent writes it, and enforced by cutting when it is stored.

A request that exceeds a limit is refused. A reply cannot be: people have read it. It is cut to its longest beginning
that fits, and its turn ends with the name of the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from threadline.core import events, parts
from threadline.core.errors import LimitExceeded
from threadline.core.event_fold import Fold
from threadline.core.events import Event, ReasoningDelta, TextDelta
from threadline.core.parts import Part, ReasoningPart, TextPart, ToolPart
from threadline.core.sealing import Limits

OUTPUT_CUT = "the output is too large to be stored"
# More than the braces, keys and comma of a text part.
_PART_OVERHEAD = 64

_encode = msgspec.json.Encoder().encode


class ReplySize:
    """How large a reply is, counted event by event, so that an agent is stopped at the limit and not after it.

    The count is an estimate that may be too high (an event can replace an earlier part), so the reply is measured
    before it is called too large."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._estimate = 0

    def add(self, event: Event, fold: Fold) -> None:
        """`fold` contains the event already. LimitExceeded, with the name of the limit."""
        self._estimate += _stored_size(event)
        if fold.part_count > self._limits.message_parts:
            raise LimitExceeded("parts per message", self._limits.message_parts, fold.part_count)
        if self._estimate > self._limits.message_bytes:
            self._estimate = len(parts.encode(fold.parts()))
            if self._estimate > self._limits.message_bytes:
                raise LimitExceeded("message size in bytes", self._limits.message_bytes, self._estimate)


def _stored_size(event: Event) -> int:
    """At least the bytes that the event adds to the stored reply."""
    match event:
        case TextDelta() | ReasoningDelta():
            # Without the two quotes.
            return len(_encode(event.text)) - 2
        case events.ToolInputDelta() | events.Status() | events.ToolResult(preliminary=True):
            return 0
    return len(events.to_json(event)) + _PART_OVERHEAD


def cut_parts(given: Sequence[Part], limits: Limits) -> tuple[Part, ...]:
    """The longest beginning of these parts that fits into a message. The part at the edge is shortened if it is a text,
    or loses its output if it is a tool call."""
    kept: list[Part] = []
    # The array's brackets.
    left = limits.message_bytes - 2
    for part in given[: limits.message_parts]:
        fitting = _fit(part, left)
        if fitting is None:
            break
        kept.append(fitting)
        # The comma after it.
        left -= _size(fitting) + 1
        if fitting is not part:
            break
    return tuple(kept)


def _size(part: Part) -> int:
    return len(parts.encode((part,))) - 2


def _fit(part: Part, room: int) -> Part | None:
    if _size(part) <= room:
        return part
    match part:
        case TextPart():
            return _shorten(part, room)
        case ReasoningPart(provider_metadata=None):
            return _shorten(part, room)
        case ToolPart() if part.output is not None:
            without = msgspec.structs.replace(part, state="output-error", output=None, error=OUTPUT_CUT)
            return without if _size(without) <= room else None
    return None


def _shorten(part: TextPart | ReasoningPart, room: int) -> Part | None:
    """The part with the longest beginning of its text that fits; escapes count as they are stored."""
    low, high = 0, len(part.text)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(msgspec.structs.replace(part, text=part.text[:middle])) <= room:
            low = middle
        else:
            high = middle - 1
    return msgspec.structs.replace(part, text=part.text[:low]) if low else None

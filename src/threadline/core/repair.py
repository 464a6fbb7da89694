"""Repair: makes a history acceptable to providers, which reject a prompt with a call that has no result.

Pure and idempotent; it adds nothing but missing results. Every call gets exactly one result, and an id and a name that
every provider accepts. Calls and results in messages that are not the assistant's are removed. Of several results the
first real one stays, next to its call. Signed reasoning is kept byte for byte or dropped whole. Blank parts are
removed, and so are messages that are empty then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from threadline.core.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart
from threadline.core.prompts import PromptMessage
from threadline.core.sanitize import CALL_ID_LENGTH, make_unique

INTERRUPTED = "interrupted: no result was recorded"
NOT_APPROVED = "not run: approval was asked for and not given"
_SYNTHETIC = frozenset((INTERRUPTED, NOT_APPROVED))
# Anthropic and OpenAI both reject any other character in ids and names of calls.
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_LENGTH = 64


def repair(messages: Iterable[PromptMessage]) -> tuple[PromptMessage, ...]:
    """The same tuple if it holds texts alone."""
    given = tuple(messages)
    if all(map(_is_plain, given)):
        return given
    calls = _Calls()
    placed = [
        (message, None if _is_plain(message) else _place(message, position, calls))
        for position, message in enumerate(given)
    ]
    settled = (message if parts is None else _settle(message, parts) for message, parts in placed)
    return tuple(message for message in settled if message is not None)


def has_distinct_calls(messages: Iterable[PromptMessage]) -> bool:
    """Whether no two calls have the same id. Then messages that were repaired turn by turn are repaired as a whole."""
    ids = [part.call_id for message in messages for part in message.parts if type(part) is ToolPart]
    return len(set(ids)) == len(ids)


def _is_plain(message: PromptMessage) -> bool:
    """One text: most messages are, and need no repair. Finding that out costs a tenth of repairing them."""
    parts = message.parts
    return len(parts) == 1 and type(parts[0]) is TextPart and bool(parts[0].text.strip())


class _Slot:
    """The place of a call. A result that is found later moves here."""

    def __init__(self, part: ToolPart, position: int, call_id: str) -> None:
        self.part = part
        self.position = position
        self.call_id = call_id

    def absorb(self, later: ToolPart) -> None:
        if _is_real(later) and not _is_real(self.part):
            self.part = later

    def settled(self) -> ToolPart:
        name = _FOREIGN.sub("_", self.part.name)[:_NAME_LENGTH] or "unnamed"
        answered = _answered(self.part)
        if (answered.call_id, answered.name) == (self.call_id, name):
            return answered
        return msgspec.structs.replace(answered, call_id=self.call_id, name=name)


class _Calls:
    """Every call so far, by its original id. New ids depend on earlier messages only, so prompt caches stay valid."""

    def __init__(self) -> None:
        self._slots: dict[str, list[_Slot]] = {}
        self._ids: set[str] = set()

    def place(self, part: ToolPart, position: int) -> _Slot | None:
        """A new slot, or None if the call is known."""
        known = self._slots.setdefault(part.call_id, [])
        for slot in known:
            if _is_same_call(slot, part, position):
                slot.absorb(part)
                return None
        spelled = _FOREIGN.sub("_", part.call_id)[:CALL_ID_LENGTH] or "call"
        slot = _Slot(part, position, make_unique(spelled, self._ids))
        self._ids.add(slot.call_id)
        known.append(slot)
        return slot


def _is_same_call(slot: _Slot, part: ToolPart, position: int) -> bool:
    first = slot.part
    if (first.name, first.input) != (part.name, part.input):
        return False
    # Two results in different messages are two calls of a server that gives all its calls the same id.
    both = _is_real(first) and _is_real(part)
    return not both or slot.position == position or (first.output, first.error) == (part.output, part.error)


def _is_real(part: ToolPart) -> bool:
    return part.is_answered and not (part.state == "output-error" and part.error in _SYNTHETIC)


def _answered(part: ToolPart) -> ToolPart:
    if part.is_answered:
        return part
    approval = part.approval
    if approval is not None and approval.approved is False:
        return msgspec.structs.replace(part, state="output-denied", output=None, error=None)
    reason = NOT_APPROVED if part.state == "approval-requested" else INTERRUPTED
    return msgspec.structs.replace(part, state="output-error", output=None, error=reason, approval=None)


def _place(message: PromptMessage, position: int, calls: _Calls) -> list[Part | _Slot]:
    placed: list[Part | _Slot] = []
    for part in message.parts:
        if isinstance(part, ToolPart):
            slot = calls.place(part, position) if message.role == "assistant" else None
            if slot is not None:
                placed.append(slot)
        elif _is_legible(part, message):
            placed.append(part)
    return placed


def _is_legible(part: Part, message: PromptMessage) -> bool:
    match part:
        case TextPart():
            return bool(part.text.strip())
        case ReasoningPart():
            return message.role == "assistant" and bool(part.text.strip() or part.provider_metadata)
    return True


def _settle(message: PromptMessage, placed: list[Part | _Slot]) -> PromptMessage | None:
    parts = [part.settled() if isinstance(part, _Slot) else part for part in placed]
    content = [index for index, part in enumerate(parts) if isinstance(part, TextPart | ToolPart | FilePart)]
    if not content:
        return None
    # Trailing reasoning is dropped: Anthropic rejects a message that ends with it.
    kept = tuple(p for index, p in enumerate(parts) if index < content[-1] or not isinstance(p, ReasoningPart))
    return message if kept == message.parts else PromptMessage(message.role, kept)

"""Approvals in a chat: the question that a reply with open calls becomes, what its buttons carry, and how it ended.

One question covers every open call of a reply: both answers are for all of them. Its token names the turn that asked
and has a digest of the calls, so a button can approve only what its message showed. Pure: values in, values out.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from threadline.core import jsontext
from threadline.core.parts import Part, ToolPart

NOT_ASKED_TEXT = "Only the person who was asked can answer this."
"""For another user who presses a button in a shared chat."""

# WhatsApp shows at most 1,024 characters beside buttons, and a longer input is not read on a phone.
_MAX_INPUT = 500
_MAX_CALLS = 5
_MAX_NAME = 64
_DIGEST = 12
# Telegram keeps 64 bytes with a button.
MAX_BUTTON_BYTES = 64
_YES, _NO = "yes:", "no:"


class ButtonAnswer(NamedTuple):
    """What a pressed button says."""

    token: str
    approved: bool

    @property
    def turn_id(self) -> str:
        return self.token.rpartition(":")[0]


class ChatQuestion(NamedTuple):
    """A question as it is sent: its Markdown, and what its two buttons carry."""

    text: str
    token: str

    @property
    def yes(self) -> str:
        return f"{_YES}{self.token}"

    @property
    def no(self) -> str:
        return f"{_NO}{self.token}"


def open_calls(parts: Iterable[Part]) -> list[ToolPart]:
    """The calls of a reply that wait for a person's decision."""
    return [part for part in parts if isinstance(part, ToolPart) and part.state == "approval-requested"]


def question_token(turn_id: str, calls: Sequence[ToolPart]) -> str:
    """`turn_id` is the turn whose reply waits."""
    compared = [
        (call.call_id, call.name, (call.input or b"").decode(), call.approval and call.approval.id) for call in calls
    ]
    return f"{turn_id}:{hashlib.sha256(msgspec.json.encode(compared)).hexdigest()[:_DIGEST]}"


def read_button(data: str) -> ButtonAnswer | None:
    """None for a button that is not one of ours."""
    for prefix, approved in ((_YES, True), (_NO, False)):
        if data.startswith(prefix) and ":" in data.removeprefix(prefix) and len(data.encode()) <= MAX_BUTTON_BYTES:
            return ButtonAnswer(data.removeprefix(prefix), approved)
    return None


def answer_button(command: str, token: str) -> str | None:
    """What the button carries that says the same as `!yes` or `!no`; None for another command."""
    prefix = {"!yes": _YES, "!no": _NO}.get(command)
    return None if prefix is None else f"{prefix}{token}"


def find_calls(answer: ButtonAnswer, parts: Iterable[Part]) -> list[ToolPart]:
    """The calls of a reply that the pressed button was shown for, whatever became of them; [] if there are none, or
    their input is another one. Calls of one question follow each other."""
    asked = [part for part in parts if isinstance(part, ToolPart) and part.approval is not None]
    for first in range(len(asked)):
        for last in range(first + 1, len(asked) + 1):
            if question_token(answer.turn_id, asked[first:last]) == answer.token:
                return asked[first:last]
    return []


def chat_question(turn_id: str, calls: Sequence[ToolPart], lifetime: dt.timedelta) -> ChatQuestion:
    """The question that is sent for the open calls of this turn's reply."""
    text = f"{calls_text(calls)}\n\nReply `!yes` or `!no` within {_hours(lifetime)}."
    return ChatQuestion(text, question_token(turn_id, calls))


def calls_text(calls: Sequence[ToolPart], outcome: str | None = None) -> str:
    """The calls as Markdown: as a question or, with an outcome, as what became of it."""
    names = ", ".join(f"`{_name(call)}`" for call in calls[:_MAX_CALLS])
    more = f" and {len(calls) - _MAX_CALLS} more" if len(calls) > _MAX_CALLS else ""
    head = f"**Allow {names}{more}?**" if outcome is None else f"{names}{more}: **{outcome}**"
    inputs = [_input(call, _MAX_INPUT // min(len(calls), _MAX_CALLS)) for call in calls[:_MAX_CALLS]]
    return "\n\n".join([head, *(f"```\n{each}\n```" for each in inputs if each)])


def outcome_word(*, approved: bool) -> str:
    return "allowed" if approved else "not allowed"


def _name(call: ToolPart) -> str:
    return call.name.replace("`", "")[:_MAX_NAME]


def _input(call: ToolPart, limit: int) -> str:
    # JSON can spell a backtick with an escape, so an input cannot end the code block that shows it.
    text = (
        "" if call.input is None else jsontext.dump(call.input_value(), "tool input").decode().replace("`", "\\u0060")
    )
    return "" if text in ("{}", "null") else text if len(text) <= limit else f"{text[:limit]}…"


def _hours(lifetime: dt.timedelta) -> str:
    hours = lifetime.total_seconds() / 3_600
    return f"{hours:g} hours" if hours != 1 else "1 hour"

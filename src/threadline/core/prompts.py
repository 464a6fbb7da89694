"""Prompts: what an agent is shown. A prompt is assembled once per turn, in Threadline's own parts; codecs translate it
for each provider. This module has what those codecs share: where one round of the model ends and the next begins, how
a tool's input and result are written, and how consecutive messages of one role become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from threadline.core import jsontext
from threadline.core.messages import Role
from threadline.core.model_options import ModelOptions
from threadline.core.parts import FilePart, Part, ReasoningPart, StepStartPart, TextPart, ToolPart, plain_text

WRAPPED_INPUT = "malformed_input"
"""Providers take only objects as a tool's input; anything else is put under this key."""


class PromptMessage(msgspec.Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]


class Prompt(msgspec.Struct, frozen=True):
    """Snapshot, system prompt and summary first (role system), then the window, then the request.

    `turns_shown` counts the turns of the window, `messages_left_out` the messages of the history before the request
    that are not in it, `tokens` is an estimate of the whole and `history_tokens` of the window. `first_seq` is where
    the window begins in the history. `body` is the request of a dispatch without a thread, as its caller sent it after
    the system messages: agents behind HTTP get it unchanged, with the fields that parts cannot express."""

    messages: tuple[PromptMessage, ...]
    model: str | None = None
    agent_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    turns_shown: int = 0
    messages_left_out: int = 0
    tokens: int = 0
    history_tokens: int = 0
    first_seq: int | None = None
    body: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    """What the caller asked the model's output to look like, in the words of OpenAI's chat API."""
    steered: dict[str, tuple[Part, ...]] = {}
    """The messages that the unfinished reply at the end of `messages` took in, by the id in their markers."""
    model_options: ModelOptions = ModelOptions()


def say(role: Role, text: str) -> PromptMessage:
    return PromptMessage(role, (TextPart(text),))


class Round(NamedTuple):
    """One response of the model: what it said and the calls it made."""

    said: tuple[Part, ...]
    calls: tuple[ToolPart, ...]


def split_rounds(parts: Iterable[Part]) -> list[Round]:
    """An assistant's parts, round by round. A text after a call begins the next round, which knew the call's result."""
    found: list[Round] = []
    said: list[Part] = []
    calls: list[ToolPart] = []
    for part in parts:
        if isinstance(part, ToolPart):
            calls.append(part)
            continue
        if calls and isinstance(part, TextPart | ReasoningPart | FilePart | StepStartPart):
            found.append(Round(tuple(said), tuple(calls)))
            said, calls = [], []
        if not isinstance(part, StepStartPart):
            said.append(part)
    if said or calls:
        found.append(Round(tuple(said), tuple(calls)))
    return found


def append_round(parts: Sequence[Part], more: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with those of the next round. A step marker is added only where two rounds could not be told apart."""
    marked = bool(parts and more) and isinstance(parts[-1], ToolPart) and isinstance(more[0], ToolPart)
    return (*parts, *((StepStartPart(),) if marked else ()), *more)


def join_same_role(messages: Iterable[PromptMessage]) -> list[PromptMessage]:
    """Consecutive messages of one role as one message, for providers that require alternating roles."""
    found: list[PromptMessage] = []
    for message in messages:
        if found and found[-1].role == message.role:
            found[-1] = PromptMessage(message.role, append_round(found[-1].parts, message.parts))
        else:
            found.append(message)
    return found


def wrap_input(part: ToolPart) -> bytes:
    """The tool's input as a JSON object: unchanged, byte for byte, if it was one. `unwrap_input` undoes it."""
    raw = part.input or b"{}"
    value = jsontext.parse(raw, "tool input")
    is_plain = isinstance(value, dict) and value.keys() != {WRAPPED_INPUT}
    return raw if is_plain else b'{"%s":%s}' % (WRAPPED_INPUT.encode(), raw)


def unwrap_input(value: Any) -> Any:
    return value[WRAPPED_INPUT] if isinstance(value, dict) and value.keys() == {WRAPPED_INPUT} else value


def outcome_text(part: ToolPart) -> str:
    """A call's result as text for a model: a string unchanged, other data as JSON."""
    if part.state == "output-error":
        return part.error or "the tool failed"
    if part.state == "output-denied":
        reason = part.approval.reason if part.approval is not None else None
        return f"denied: {reason}" if reason else "denied"
    value = part.output_value()
    return value if isinstance(value, str) else (part.output or b"null").decode()


def file_note(part: FilePart) -> str:
    """The text for a file where the file itself cannot be sent."""
    return f"[file {part.filename}, {part.media_type}]" if part.filename else f"[file, {part.media_type}]"


def text_with_file_notes(parts: Sequence[Part]) -> str:
    """The text of a message, with a note in place of each file."""
    return plain_text([TextPart(file_note(part)) if isinstance(part, FilePart) else part for part in parts])

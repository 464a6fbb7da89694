"""Questions that a command asked in a place and that are not answered yet: a confirmation, or a numbered list.

A question is a plain value in the metadata of the place's binding, so it survives a restart. It belongs to one user in
one place: only this user can answer it, and only there. Text that is no answer is handled as if there were no question;
the question stays open until it is answered or expires.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from threadline.core.commands import Command, CommandName, parse, read_choice

METADATA_KEY = "pending"
"""Bindings store it, and the SQL function `find_turn_thread` looks for it: another name needs a migration."""
EXPIRES_AFTER = dt.timedelta(minutes=10)


class OpenQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`does` is the command that an answer runs. With `choices` it is a list: the chosen entry becomes the argument.
    Without, it is a confirmation of `does` with `argument`."""

    does: CommandName
    asked_of: str
    expires_at: dt.datetime
    argument: str | None = None
    choices: tuple[str, ...] = ()


class Agreed(NamedTuple):
    """Run this command now: it was confirmed, or chosen."""

    does: CommandName
    argument: str | None


class Declined(NamedTuple):
    does: CommandName


def ask_to_confirm(does: CommandName, asked_of: str, now: dt.datetime, *, argument: str | None = None) -> OpenQuestion:
    """A confirmation: `!yes` runs the command, `!no` (or `!cancel`) closes the question."""
    return OpenQuestion(does, asked_of, now + EXPIRES_AFTER, argument=argument)


def ask_to_choose(does: CommandName, asked_of: str, now: dt.datetime, choices: Sequence[str]) -> OpenQuestion:
    """A numbered list: a number picks, 0 or `!cancel` closes it. `choices` are the arguments, not the labels."""
    if not choices:
        raise ValueError("`choices` must have at least one entry")
    return OpenQuestion(does, asked_of, now + EXPIRES_AFTER, choices=tuple(choices))


def read_answer(
    question: OpenQuestion | None, text: str, *, user_id: str, now: dt.datetime
) -> Agreed | Declined | None:
    """What a text answers to the question; None if it is no answer, or the question is another user's or expired."""
    if question is None or question.asked_of != user_id or now >= question.expires_at:
        return None
    if question.choices:
        number = read_choice(text, len(question.choices))
        if number is None:
            return None
        return Agreed(question.does, question.choices[number - 1]) if number else Declined(question.does)
    match parse(text):
        case Command("yes"):
            return Agreed(question.does, question.argument)
        case Command("no" | "cancel"):
            return Declined(question.does)
    return None


def question_in(metadata: Mapping[str, Any]) -> OpenQuestion | None:
    """The question in a binding's metadata. None also for one that cannot be read, so that it does not block the
    next."""
    kept = metadata.get(METADATA_KEY)
    if kept is None:
        return None
    try:
        return msgspec.convert(kept, OpenQuestion)
    except msgspec.ValidationError:
        return None


def with_question(metadata: Mapping[str, Any], question: OpenQuestion | None) -> dict[str, Any]:
    """The metadata with this question in place of any other; None removes it. Other keys are kept."""
    others = {key: value for key, value in metadata.items() if key != METADATA_KEY}
    return others if question is None else {**others, METADATA_KEY: msgspec.to_builtins(question)}

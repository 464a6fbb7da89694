"""What a user was asked in a place and has not answered yet: to confirm something, or to choose from a numbered list.

It is a plain value that lives in the metadata of the place's binding, so it survives a restart. It belongs to one user
in one place: nobody else's answer counts, and none counts in another room. Whatever is no answer to it is an ordinary
text or a command of its own, and leaves the question standing until it expires.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from threadline.core.commands import Command, CommandName, chosen, parse

METADATA_KEY = "pending"
"""PostgreSQL's `take_arrival` spells it as well, in the schema: another name is a migration, not an edit here."""
EXPIRES_AFTER = dt.timedelta(minutes=10)


class Pending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`does` is what a yes, or a choice, would do. With `choices` it is a list: the one that is picked becomes the
    argument. Without, it is a confirmation of `does` with `argument`."""

    does: CommandName
    asked_of: str
    expires_at: dt.datetime
    argument: str | None = None
    choices: tuple[str, ...] = ()


class Agreed(NamedTuple):
    """Do this now: what was confirmed, or what was chosen."""

    does: CommandName
    argument: str | None


class Declined(NamedTuple):
    """Do not do this, and ask no more."""

    does: CommandName


def ask(does: CommandName, asked_of: str, now: dt.datetime, *, argument: str | None = None) -> Pending:
    """A confirmation: `!yes` does it, `!no` (or `!cancel`) does not."""
    return Pending(does, asked_of, now + EXPIRES_AFTER, argument=argument)


def offer(does: CommandName, asked_of: str, now: dt.datetime, choices: Sequence[str]) -> Pending:
    """A numbered list: a number picks, 0 or `!cancel` leaves. `choices` are what is picked, not how it is shown."""
    if not choices:
        raise ValueError("a list to choose from has at least one entry")
    return Pending(does, asked_of, now + EXPIRES_AFTER, choices=tuple(choices))


def answer(pending: Pending | None, text: str, *, user_id: str, now: dt.datetime) -> Agreed | Declined | None:
    """What a text says to the question; None if it is no answer to it: then the question stands, and the text is
    whatever it is without one."""
    if pending is None or pending.asked_of != user_id or now >= pending.expires_at:
        return None
    if pending.choices:
        number = chosen(text, len(pending.choices))
        if number is None:
            return None
        return Agreed(pending.does, pending.choices[number - 1]) if number else Declined(pending.does)
    match parse(text):
        case Command("yes"):
            return Agreed(pending.does, pending.argument)
        case Command("no" | "cancel"):
            return Declined(pending.does)
    return None


def pending_in(metadata: Mapping[str, Any]) -> Pending | None:
    """The question that a binding's metadata holds. None for none, and for what is not readable: a question that
    cannot be read cannot be answered, and must not stand in the way of the next."""
    kept = metadata.get(METADATA_KEY)
    if kept is None:
        return None
    try:
        return msgspec.convert(kept, Pending)
    except msgspec.ValidationError:
        return None


def with_pending(metadata: Mapping[str, Any], pending: Pending | None) -> dict[str, Any]:
    """The same metadata with this question instead of any other; None asks nothing. Other keys are kept."""
    others = {key: value for key, value in metadata.items() if key != METADATA_KEY}
    return others if pending is None else {**others, METADATA_KEY: msgspec.to_builtins(pending)}

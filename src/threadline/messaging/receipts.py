"""What became of an arrival."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from threadline.core.turns import Turn

Decision: TypeAlias = Literal[
    "accepted",
    "command",
    "denied_rbac",
    "denied_no_agent",
    "denied_sentinel",
    "denied_budget",
    "denied_unverified",
    "duplicate",
    "replay_blocked",
    "refused",
    "blank",
    "ignored",
    "unsupported",
    "welcome",
    "linked",
    "link_refused",
    "link_limited",
]
"""The decision when it arrived. How an accepted turn ended is stored with the turn."""

WITHOUT_REPLY: frozenset[Decision] = frozenset(("accepted", "duplicate", "replay_blocked", "blank", "ignored"))
"""Decisions that enqueue nothing yet."""


class Receipt(NamedTuple):
    decision: Decision
    turn: Turn | None = None
    user_id: str | None = None
    """The sender's user; None for an account without a link."""
    stopped: tuple[str, ...] = ()
    """Turns that a command asked to stop."""

    @property
    def turn_id(self) -> str | None:
        return None if self.turn is None else self.turn.id

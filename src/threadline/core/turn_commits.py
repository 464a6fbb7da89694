"""The two commits of every turn: what a store is given to accept and to finish a turn, and what it answers.

A store either stores all of it or nothing. If it stores nothing it answers with a reason, which
`threadline.turns.acceptance` translates into the error that the user sees.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core.errors import InvalidInput
from threadline.core.sealing import CleanText, Sealed
from threadline.core.threads import NewThread, Scope, Thread
from threadline.core.turns import Lease, Policy, Surface, Turn, TurnStatus


class HomeClaim(NamedTuple):
    """The home thread: that of the binding `place` of surface `web`, else the first of the living threads under these
    state keys."""

    place: str
    keys: tuple[str, ...]


class ArrivalClaim(NamedTuple):
    """The inbox row of a platform's message, claimed in the commit that stores its turn.

    A place that is bound decides the thread. A place that is not, or whose thread was deleted, is bound to the home
    thread, or without one to the thread that `TurnAcceptance.new_thread` finds or creates."""

    platform: Surface
    key: str
    fingerprint: str
    correlation_id: str
    reply_to: str
    place: str
    """As the bindings spell it."""
    is_question_checked: bool = False
    """Whether the caller knows that the text does not answer the question that is open at the place."""
    home: HomeClaim | None = None


class TurnAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is stored, together with its turn.

    The thread is `thread_id`, or the one that the arrival's place is bound to, or the living one under the state key of
    `new_thread`; if there is none, it is created."""

    turn_id: str
    surface: Surface
    message: Sealed
    policy: Policy = "queue"
    thread_id: str | None = None
    new_thread: NewThread = NewThread()
    replaces: str | None = None
    """The message that this one replaces, of the same role: the thread is first rewound to before it, on a new
    timeline. A reply can be replaced only while it is the thread's last message."""
    agent_id: str | None = None
    """Without one, the turn is for the thread's agent."""
    model: str | None = None
    """Without one, the thread's or the agent's model is asked."""
    key: str | None = None
    request_hash: bytes | None = None
    seen: dict[str, Any] = {}
    """What is known of `Turn.seen` before the turn runs."""
    title: CleanText | None = None
    """The thread's title, if it has none yet."""
    status: TurnStatus = "accepted"
    """A status that is an end, for a request that is denied: its turn has ended when it is stored."""
    lease: Lease | None = None
    is_only_reserved: bool = False
    """Whether the lease reserves the turn and leaves it `accepted`, for a process that leases it later."""
    must_check_holder: bool = False
    """Refuses with `turn_running`, whatever the policy, if the first active turn of the thread is another process's:
    the caller then checks whether that process still runs, and asks again without this."""
    arrival: ArrivalClaim | None = None


def refuse_system_arrival(scope: Scope, new: TurnAcceptance) -> None:
    """InvalidInput for an arrival in the system scope: a claim and a binding belong to the user who wrote."""
    if new.arrival is not None and scope.role == "system":
        raise InvalidInput("an arrival must be accepted in the scope of its user, got the system scope")


class Accepted(msgspec.Struct, frozen=True):
    """A stored request. `replayed` means that it had been accepted before under the same key."""

    turn: Turn
    thread: Thread
    replayed: bool = False
    leased: bool = False
    """Whether this call has leased the turn as well, so that it can be run without asking the store again."""


AcceptRefusalReason: TypeAlias = Literal[
    "duplicate_arrival",
    "key_reused",
    "question_open",
    "place_taken",
    "thread_missing",
    "turn_running",
    "replaced_missing",
    "replaced_not_user",
    "replaced_not_last",
    "message_repeated",
    "message_known",
    "thread_full",
    "id_known",
]
"""Why a request was not stored, in the order in which stores check.

`duplicate_arrival`: its inbox key is claimed. `key_reused`: the idempotency key came with another request hash.
`question_open`: the place has an open question that this text may answer. `place_taken`: the place is another user's.
`replaced_missing`, `replaced_not_user`, `replaced_not_last`: what `replaces` names is not in the history, has another
role than the message, or is a reply with later messages.
`message_repeated`, `message_known`: the history has a message with this id and the same content, or another.
`thread_full`: there is no room for the request, its reply, and the replies of the turns that are active.
`id_known`: the id of the turn, or of the thread to create, exists."""


class AcceptRefusal(NamedTuple):
    reason: AcceptRefusalReason
    thread: Thread | None = None
    """The thread that was found; with `key_reused`, the one on which the key was used."""
    turn_id: str | None = None
    """The turn that is active, or that has the key."""


class ReplyDelivery(NamedTuple):
    """What is delivered to a platform when a turn ends: one outbox row for each payload, to the place that the inbox
    row names. The inbox row is settled in the same commit. Without an inbox row nothing is delivered."""

    platform: Surface
    key: str
    payloads: tuple[CleanText, ...]


FinishRefusalReason: TypeAlias = Literal["turn_missing", "lease_lost", "already_ended", "reply_known", "thread_full"]


class FinishRefusal(NamedTuple):
    reason: FinishRefusalReason


def outbox_id(name: str, number: int) -> str:
    """The id of a delivery's row. It is made from what it answers, so that a repeated delivery is stored once."""
    return f"{name}-{number}"

"""Turns: one request and its reply, the states between them, and which change may follow which.

A turn is accepted, leased by a process, run, and ends once. Ends are final. The fence is a number that grows with every
lease: a process that holds an old one can no longer write.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core.errors import InvalidInput, quote
from threadline.core.plain_values import PlainValue
from threadline.core.threads import Point
from threadline.core.usage import Charge

Surface: TypeAlias = Literal["web", "api", "cli", "slack", "telegram", "whatsapp", "matrix"]
SURFACES: tuple[Surface, ...] = ("web", "api", "cli", "slack", "telegram", "whatsapp", "matrix")

CHANNELS: frozenset[Surface] = frozenset(("slack", "telegram", "whatsapp", "matrix"))
"""Messaging surfaces: their turns are queued, are answered once even after a crash, and are delivered to a place."""

Policy: TypeAlias = Literal["reject", "queue", "interrupt", "steer"]
"""What happens to a request while another turn runs on its thread. `steer`: the running turn takes the message in
before its next model call; if it ends first, the message is answered after it, as with `queue`."""

ChatPolicy: TypeAlias = Literal["queue", "steer"]
"""The policies of messaging surfaces, where a message is neither refused nor stops another."""

TurnStatus: TypeAlias = Literal[
    "accepted",
    "running",
    "executed",
    "dispatch_failed",
    "stopped",
    "interrupted",
    "denied_rbac",
    "denied_no_agent",
    "denied_sentinel",
    "denied_budget",
]

TRANSITIONS: dict[TurnStatus, frozenset[TurnStatus]] = {
    "accepted": frozenset(("running", "stopped", "interrupted", "dispatch_failed")),
    "running": frozenset(("running", "executed", "dispatch_failed", "stopped", "interrupted")),
    "executed": frozenset(),
    "dispatch_failed": frozenset(),
    "stopped": frozenset(),
    "interrupted": frozenset(),
    "denied_rbac": frozenset(),
    "denied_no_agent": frozenset(),
    "denied_sentinel": frozenset(),
    "denied_budget": frozenset(),
}

ACTIVE: frozenset[TurnStatus] = frozenset(("accepted", "running"))


def require_ended(turn_id: str, status: TurnStatus) -> None:
    """InvalidInput for a turn that could still run."""
    if status not in TRANSITIONS or status in ACTIVE:
        ended = ", ".join(sorted(TRANSITIONS.keys() - ACTIVE))
        raise InvalidInput(f"turn {quote(turn_id)} must have ended ({ended}), got {quote(status)}")


class Turn(msgspec.Struct, frozen=True):
    id: str
    owner_id: str
    thread_id: str
    surface: Surface
    agent_id: str | None
    status: TurnStatus
    idempotency_key: str | None
    request_hash: bytes | None
    request_seq: int | None
    reply_seq: int | None
    error: str | None
    usage: dict[str, Any]
    seen: dict[str, Any]
    """What the agent was shown, apart from the messages themselves: see `TurnEnd.seen`."""
    lease_owner: str | None
    lease_until: dt.datetime | None
    fence: int
    created_at: dt.datetime
    finished_at: dt.datetime | None
    provider: str | None = None
    """Known once the turn has ended."""
    model: str | None = None
    """The one that the request named; once the turn has ended, the one that was asked."""
    steers: str | None = None
    """The turn that ran when this request was accepted, if that turn may take the message in."""

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def asked_by(self) -> str:
        """The user who asked: whose budget it uses, and who answers its calls for approval."""
        asked_by: str = self.seen.get(ASKED_BY, self.owner_id)
        return asked_by

    @property
    def taken_by(self) -> str | None:
        """The turn whose reply also answers this request. Known once both have ended."""
        return self.seen.get(TAKEN_BY)

    @property
    def prompt_tokens(self) -> int | None:
        return self.seen.get("tokens")

    @property
    def window_tokens(self) -> int | None:
        return self.seen.get("window_tokens")

    @property
    def is_handed_over(self) -> bool:
        """Whether the process that had it released it for another, at `lease_until`. One that died leaves its name."""
        return self.is_active and self.lease_owner is None and self.lease_until is not None


class TurnInfo(PlainValue, frozen=True, kw_only=True):
    """A turn as its user sees it: without its lease, its fence and what else only the runner needs."""

    id: str
    thread_id: str
    surface: Surface
    status: TurnStatus
    agent_id: str | None = None
    provider: str | None = None
    model: str | None = None
    error: str | None = None
    usage: dict[str, Any] = msgspec.field(default_factory=dict)
    """`input_tokens`, `output_tokens`, `cached_tokens`, `reasoning_tokens`, and `cost` if the model has a price."""
    prompt_tokens: int | None = None
    """Of the prompt at the turn's start, as estimated when it was assembled. None until the turn has ended."""
    window_tokens: int | None = None
    """The most that the prompt could have; None if the window has no limit of tokens."""
    request_seq: int | None = None
    reply_seq: int | None = None
    created_at: dt.datetime
    finished_at: dt.datetime | None = None
    taken_by: str | None = None
    """The turn that took the message in while it ran: its reply answers this request as well."""

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE


def turn_info(turn: Turn) -> TurnInfo:
    fields = {field: getattr(turn, field) for field in TurnInfo.__struct_fields__}
    # Rows of earlier versions also contain the event's type.
    usage = {key: value for key, value in turn.usage.items() if key != "type"}
    return TurnInfo(**{**fields, "usage": usage})


class Lease(NamedTuple):
    """The process that asks to run a turn, and for how many seconds by the store's clock no other may take it. Without
    a worker, the turn is for whichever process takes it first (see `Turn.is_handed_over`)."""

    worker: str | None
    seconds: float


class TurnEnd(msgspec.Struct, frozen=True):
    """How a turn ended: written once, together with its reply."""

    status: TurnStatus
    error: str | None = None
    usage: dict[str, Any] = {}
    seen: dict[str, Any] = {}
    """Which range of the history went into the prompt, and the system texts before it (JSON object, stored as text)."""
    charge: Charge | None = None
    """Counted with the end. None if no agent was called."""
    is_counted: bool = True
    """False if the caller counts the charge: it is another user's than the turn, and a transaction has one user."""
    taken: tuple[str, ...] = ()
    """The turns whose messages this one took in: they end with it, in the same way and with the same reply."""


def root_turn_id(turn_id: str) -> str:
    """The turn that began the reply. A turn that answers approvals continues the reply of another."""
    return turn_id.partition(".")[0]


def answering_turn_id(root_id: str, approval_id: str) -> str:
    """The id of the one turn that may answer a request: a second answer, from any surface, finds the first."""
    digest = hashlib.sha256(approval_id.encode(errors="surrogatepass"))
    return f"{root_id}.{digest.hexdigest()[:16]}"


CUT_SHORT = "cut_short"
"""In `Turn.seen`: why the model ended a reply that is not complete, `length` or `content-filter`."""
BEGUN = "begun"
"""In `Turn.seen`: of the reply that the turn continues, how many parts there were and which calls were open."""
ASKED_BY = "asked_by"
"""In `Turn.seen`: the user who asked, in a thread of another user."""
TAKEN_BY = "taken_by"
"""In `Turn.seen`: the turn that took the request in while it ran."""
CONTINUES = "continues"
"""In `Turn.seen`: the turn whose open calls this one answers."""
ANSWERED_ELSEWHERE = "answered_elsewhere"
"""In the `Turn.seen` that a platform's reply is rendered from: another surface answered the platform's question."""

_REPLY = "-reply"


def reply_id(turn_id: str) -> str:
    """The id of a turn's reply: the same for every run of the turn, so that a repeat cannot store a second one, and for
    every turn that continues it."""
    return f"{root_turn_id(turn_id)}{_REPLY}"


def turn_id_of_reply(message_id: str) -> str | None:
    """The turn that began the reply of this id, if it is the id of a reply."""
    return message_id.removesuffix(_REPLY) if message_id.endswith(_REPLY) else None


class ToolRun(msgspec.Struct, frozen=True):
    """A tool's run inside a turn, stored before the tool starts: after a crash it tells what may be repeated."""

    turn_id: str
    call_id: str
    name: str
    input_json: bytes
    repeatable: bool
    output_json: bytes | None
    finished_at: dt.datetime | None
    is_new: bool = False
    """Whether the call that returned this value wrote the intent, or found it."""


class Chunk(msgspec.Struct, frozen=True):
    """One event of a turn's stream as JSON, numbered from 1, stored for a while so that streams can be resumed."""

    n: int
    json: bytes


SummarySource: TypeAlias = Literal["model", "extract", "person"]
"""Who wrote a summary: a model, a person who edited it, or no one: an extract lists beginnings of messages."""
SUMMARY_CHANGED = "the thread or its summary has changed since it was read: read it again"


class SummaryLabel(NamedTuple):
    source: SummarySource = "extract"
    model: str | None = None


class Summary(PlainValue, frozen=True):
    """A text that replaces the history up to and including `point` in prompts. The messages stay stored. `model` is the
    one that wrote it, if its name is known."""

    point: Point
    text: str
    created_at: dt.datetime
    source: SummarySource = "extract"
    model: str | None = None

    @property
    def label(self) -> str:
        """Who wrote it, for people."""
        if self.source == "extract":
            return "extract, not summarised by a model"
        return "edited by a person" if self.source == "person" else f"summarised by {self.model or 'the agent'}"

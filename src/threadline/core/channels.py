"""What messaging surfaces need kept: bindings, links and their codes, inbox and outbox rows, snapshots, agents."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core.plain_values import PlainValue
from threadline.core.threads import UserRole
from threadline.core.turns import Surface

LinkState: TypeAlias = Literal["pending", "verified", "revoked"]
LinkResult: TypeAlias = Literal["linked", "link_refused", "link_limited"]
InboxStatus: TypeAlias = Literal["claimed", "accepted", "done", "dead"]
"""`claimed`: its effects are being stored; `accepted`: its turn is not answered yet; `dead`: it could not be read."""
OutboxStatus: TypeAlias = Literal["waiting", "claimed", "sent", "dead", "window_closed"]

REQUEUEABLE: tuple[OutboxStatus, ...] = ("dead", "window_closed")

AMBIGUOUS = "ambiguous"
"""How the error of a row begins that may have been sent without anybody knowing."""
ABANDONED = f"{AMBIGUOUS}: the worker that was sending it went away"


class Binding(msgspec.Struct, frozen=True):
    """A place (a room, a chat, a channel) and its thread."""

    surface: Surface
    place: str
    owner_id: str
    thread_id: str
    label: str | None
    metadata: dict[str, Any]
    created_at: dt.datetime
    updated_at: dt.datetime


class Link(msgspec.Struct, frozen=True):
    """An account on a platform and its user."""

    platform: Surface
    platform_user_id: str
    owner_id: str
    state: LinkState
    created_at: dt.datetime
    updated_at: dt.datetime


class Sender(NamedTuple):
    """The user of an account on a platform, and their role."""

    owner_id: str
    state: LinkState
    role: UserRole


class Redeemed(NamedTuple):
    """What came of a code that was sent; the owner if it was good."""

    result: LinkResult
    owner_id: str | None = None


class ContextSnapshot(PlainValue, frozen=True):
    agent_id: str
    owner_id: str
    context: str
    created_at: dt.datetime
    updated_at: dt.datetime


class Agent(msgspec.Struct, frozen=True):
    """An agent of the tenant, as its administrator set it up."""

    id: str
    name: str
    provider: str
    model: str | None = None
    settings: dict[str, Any] = {}
    system_prompt: str | None = None
    enabled: bool = True


class User(msgspec.Struct, frozen=True):
    """A disabled user has no access: their tokens and links were revoked at `disabled_at`."""

    id: str
    display_name: str | None = None
    role: Literal["viewer", "member", "admin"] = "member"
    disabled_at: dt.datetime | None = None


class SealedCredentials(msgspec.Struct, frozen=True):
    """A platform's secrets for one tenant, sealed under one of the operator's keys."""

    platform: Surface
    key_id: str
    sealed: bytes
    updated_at: dt.datetime

    def __repr__(self) -> str:
        return f"<credentials for {self.platform}, sealed under {self.key_id}>"


class InboxRow(msgspec.Struct, frozen=True):
    """What arrived from a platform, claimed once by its key."""

    platform: Surface
    key: str
    status: str
    decision: str | None
    turn_id: str | None
    fingerprint: str | None
    correlation_id: str | None
    reply_to: str | None
    """The place that the answer goes to, as the platform spells it."""
    owner_id: str | None
    created_at: dt.datetime
    updated_at: dt.datetime


class OutboxRow(msgspec.Struct, frozen=True):
    """What is to be delivered, until it is."""

    id: str
    turn_id: str | None
    owner_id: str
    platform: Surface
    recipient: str
    payload: str
    status: OutboxStatus
    attempts: int
    next_attempt_at: dt.datetime
    claimed_by: str | None
    claimed_until: dt.datetime | None
    last_error: str | None
    created_at: dt.datetime
    sent_at: dt.datetime | None
    requeued_at: dt.datetime | None = None
    message_id: str | None = None
    """The platform's id of the message, once it was sent."""

    @property
    def queued_at(self) -> dt.datetime:
        """When it was enqueued, or last requeued: retries end so long after that."""
        return self.requeued_at or self.created_at

    @property
    def is_ambiguous(self) -> bool:
        """It may have been sent by an earlier attempt."""
        return (self.last_error or "").startswith(AMBIGUOUS)


class OutboxBacklog(msgspec.Struct, frozen=True):
    """Deliveries to a platform that are not sent."""

    platform: Surface
    status: OutboxStatus
    count: int
    oldest_at: dt.datetime
    last_error: str | None

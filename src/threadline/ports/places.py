"""Store operations on bindings, contexts, agents, users and links; on the inbox and the outbox; and on credentials."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from threadline.core.access import TokenRole
from threadline.core.channels import (
    Agent,
    Binding,
    ContextSnapshot,
    InboxRow,
    InboxStatus,
    Link,
    LinkState,
    OutboxBacklog,
    OutboxRow,
    OutboxStatus,
    SealedCredentials,
    Sender,
    User,
)
from threadline.core.sealing import CleanJson, CleanText
from threadline.core.turns import Surface


class PlaceOperations(Protocol):
    async def bind(
        self,
        surface: Surface,
        place: str,
        thread_id: str,
        *,
        label: str | None = None,
        metadata: CleanJson | None = None,
    ) -> Binding:
        """Binds the place to the thread and replaces its previous binding. A label or metadata that is left out stays
        the same. NotFound for an unknown thread. A place has one binding in a tenant, so another owner's place is
        DuplicateId."""
        ...

    async def binding(self, surface: Surface, place: str) -> Binding | None: ...

    async def bindings(self, *, surface: Surface | None = None, thread_id: str | None = None) -> list[Binding]: ...

    async def unbind(self, surface: Surface, place: str) -> bool: ...

    async def set_context(self, agent_id: str, context: CleanText) -> ContextSnapshot:
        """Stores or replaces the owner's snapshot for the agent; `created_at` stays the same, `updated_at` changes. The
        agent needs no row, because built-in agents have none."""
        ...

    async def context(self, agent_id: str) -> ContextSnapshot | None: ...

    async def contexts(self) -> list[ContextSnapshot]:
        """The owner's own, by agent id."""
        ...

    async def clear_context(self, agent_id: str) -> bool: ...

    async def put_agent(self, agent: Agent) -> Agent:
        """Creates or replaces an agent of the tenant."""
        ...

    async def agent(self, agent_id: str) -> Agent | None: ...

    async def agents(self) -> list[Agent]:
        """By id."""
        ...

    async def delete_agent(self, agent_id: str) -> bool:
        """Removes the agent and every context snapshot for it; threads keep their history."""
        ...

    async def put_user(self, user: User) -> User:
        """Creates or replaces a user; `disabled_at` does not change. Only system and admin scopes may name another user
        (RoleRefused)."""
        ...

    async def user(self, user_id: str) -> User | None: ...

    async def users(self, *, after_id: str | None = None, limit: int | None = None) -> list[User]:
        """Every user of the tenant, by id; with `after_id` those that follow it. System and admin scopes only; others
        see themselves."""
        ...

    async def disable_user(self, user_id: str) -> User | None:
        """Ends the access of a user: revokes their tokens, sign-ins and links, removes their link codes and stops
        their turns. None if there is no such user. A disabled user stays disabled since the first time. Admin and
        system scopes only (RoleRefused)."""
        ...

    async def enable_user(self, user_id: str) -> User | None:
        """Ends the disabling; tokens, sign-ins and links stay revoked. None if there is no such user. Admin and
        system scopes only (RoleRefused)."""
        ...

    async def limit_tokens(self, user_id: str, role: TokenRole) -> int:
        """Gives the user's tokens and sign-ins that have a higher role this one. How many. Admin and system scopes only
        (RoleRefused)."""
        ...

    async def put_link(self, platform: Surface, platform_user_id: str, owner_id: str, state: LinkState) -> Link:
        """Creates or changes the link of a platform's user. Only the system scope may name another owner (RoleRefused)
        or take over a link that another owner has (DuplicateId for everyone else)."""
        ...

    async def link(self, platform: Surface, platform_user_id: str) -> Link | None:
        """The system scope sees every link of its tenant; a user sees their own."""
        ...

    async def sender(self, platform: Surface, platform_user_id: str) -> Sender | None:
        """The sender of a message: the owner of the link, its state (`revoked` if the owner is disabled), and the
        owner's role. System scope."""
        ...

    async def links(self) -> list[Link]: ...

    async def delete_link(self, platform: Surface, platform_user_id: str) -> bool: ...

    async def put_link_code(self, code_hash: bytes, platform: Surface | None, expires_at: dt.datetime) -> None:
        """Stores the hash of a code of this user. DuplicateId if a code with this hash exists."""
        ...

    async def redeem_link_code(self, code_hash: bytes, platform: Surface, now: dt.datetime) -> str | None:
        """Redeems the code and returns its owner; None if it is unknown, expired, used, or for another platform. System
        scope."""
        ...


class QueueOperations(Protocol):
    """Inbox and outbox. Claims are exclusive: only one of any number of workers gets a row. The system scope sees the
    tenant's rows, a user their own; only the system scope may name another owner (RoleRefused)."""

    async def claim_inbox(
        self,
        platform: Surface,
        key: str,
        *,
        fingerprint: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        owner_id: str | None = None,
    ) -> InboxRow | None:
        """Claims the arrival with this key: the new row, with status `claimed`; None if it was claimed before.
        `reply_to` is the place to which the answer is sent."""
        ...

    async def settle_inbox(
        self, platform: Surface, key: str, *, status: str, decision: str | None = None, turn_id: str | None = None
    ) -> bool: ...

    async def inbox_row(self, platform: Surface, key: str) -> InboxRow | None: ...

    async def inbox(
        self, *, status: InboxStatus | None = None, platform: Surface | None = None, limit: int = 100
    ) -> list[InboxRow]:
        """Newest first."""
        ...

    async def unanswered(self, *, limit: int = 100) -> list[InboxRow]:
        """Rows with status `accepted` whose turn has ended or does not exist, oldest first. System scope."""
        ...

    async def drop_settled(self, *, before: dt.datetime) -> int:
        """Removes arrivals and deliveries from before `before`; those not answered or delivered stay. Returns how many
        rows. Histories do not depend on them. System scope."""
        ...

    async def enqueue(
        self,
        platform: Surface,
        recipient: str,
        payload: CleanText,
        *,
        turn_id: str | None,
        owner_id: str,
        id: str | None = None,
    ) -> OutboxRow:
        """Adds a row that waits for delivery. If the id exists, returns that row and writes nothing; DuplicateId if the
        row belongs to another owner."""
        ...

    async def claim_outbox(
        self,
        worker: str,
        *,
        until: dt.datetime,
        limit: int = 10,
        platforms: Sequence[Surface] | None = None,
        gone: Sequence[str] = (),
        holding: Sequence[str] = (),
    ) -> list[OutboxRow]:
        """Rows of the tenant that are due (waiting and past their time, or claimed and past their claim), oldest first,
        now claimed by this worker. With `platforms`, only rows for these: a worker claims what it can send. Claims of
        the workers in `gone` are due at once. The rows in `holding` are not claimed: this worker has them. Rows for one
        recipient are delivered in order: a row is due only when no earlier one for its recipient is waiting or claimed.
        A claim that is taken over counts as an attempt, and its `last_error` says that the result is unknown. System
        scope."""
        ...

    async def settle_outbox(
        self,
        outbox_id: str,
        worker: str,
        *,
        status: OutboxStatus,
        next_attempt_at: dt.datetime | None = None,
        error: str | None = None,
        message_id: str | None = None,
    ) -> bool:
        """Stores the result of a claimed row, with the platform's id of the message, and counts the attempt. False if
        this worker no longer has the claim."""
        ...

    async def report_outbox(
        self, outbox_id: str, *, was: OutboxStatus, status: OutboxStatus, error: str | None = None
    ) -> bool:
        """Stores a later report of the platform: the row changes from status `was` to `status`. False if its status is
        not `was`. System scope."""
        ...

    async def outbox(
        self, *, status: OutboxStatus | None = None, platform: Surface | None = None, limit: int = 100
    ) -> list[OutboxRow]:
        """Newest first."""
        ...

    async def outbox_row(self, outbox_id: str) -> OutboxRow | None: ...

    async def outbox_workers(self) -> list[str]:
        """The workers that have claims, sorted. System scope."""
        ...

    async def outbox_backlog(self) -> list[OutboxBacklog]:
        """What is not delivered, by platform and status, sorted by both: how many rows, since when, and the error of
        the oldest row that has one. System scope."""
        ...

    async def requeue(self, outbox_id: str) -> OutboxRow:
        """Makes a dead or window-closed row wait again, with its attempts reset, in its old place. NotFound; Conflict
        if it has another status."""
        ...

    async def requeue_all(
        self,
        statuses: Sequence[OutboxStatus],
        *,
        platform: Surface | None = None,
        recipient: str | None = None,
        since: dt.datetime | None = None,
    ) -> int:
        """Requeues every row with one of these statuses, for this platform and recipient, enqueued at or after `since`.
        How many. The system scope requeues the tenant's rows, a user their own."""
        ...


class CredentialOperations(Protocol):
    """The tenant's secrets for a platform, encrypted by the caller. System scope only (RoleRefused)."""

    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        """Stores or replaces the secrets."""
        ...

    async def credentials(self, platform: Surface) -> SealedCredentials | None: ...

    async def all_credentials(self) -> list[SealedCredentials]:
        """By platform."""
        ...

    async def delete_credentials(self, platform: Surface) -> bool:
        """False if there are none."""
        ...

"""The store's verbs for where conversations go on and who takes part, and for what comes and goes there.

Bindings, agents, users and links; the inbox and the outbox; the sealed credentials of platforms.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from threadline.core.channels import (
    Agent,
    Binding,
    ContextSnapshot,
    InboxRow,
    Link,
    LinkState,
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
        """Binds the place to the thread, instead of what it was bound to. Label and metadata left out stay as they
        were. NotFound for an unknown thread. A place has one binding in a tenant, so another owner's place is
        DuplicateId."""
        ...

    async def binding(self, surface: Surface, place: str) -> Binding | None: ...

    async def bindings(self, *, surface: Surface | None = None, thread_id: str | None = None) -> list[Binding]: ...

    async def unbind(self, surface: Surface, place: str) -> bool: ...

    async def set_context(self, agent_id: str, context: CleanText) -> ContextSnapshot:
        """Stores or overwrites the owner's snapshot for the agent; `created_at` stays, `updated_at` moves. The agent
        needs no row: those that come with the house have none."""
        ...

    async def context(self, agent_id: str) -> ContextSnapshot | None: ...

    async def clear_context(self, agent_id: str) -> bool: ...

    async def put_agent(self, agent: Agent) -> Agent:
        """Creates or replaces an agent of the tenant."""
        ...

    async def agent(self, agent_id: str) -> Agent | None: ...

    async def agents(self) -> list[Agent]:
        """By id."""
        ...

    async def delete_agent(self, agent_id: str) -> bool:
        """Removes it and every snapshot pinned for it; threads keep their history."""
        ...

    async def put_user(self, user: User) -> User:
        """Creates or replaces a user. Only system and admin scopes may name another than themselves (RoleRefused)."""
        ...

    async def user(self, user_id: str) -> User | None: ...

    async def users(self) -> list[User]:
        """Every user of the tenant, by id. System and admin scopes only; others see themselves."""
        ...

    async def put_link(self, platform: Surface, platform_user_id: str, owner_id: str, state: LinkState) -> Link:
        """Creates or changes the link of a platform's user. Only the system scope may name another owner (RoleRefused)
        or take over a link that another owner has (DuplicateId for everyone else)."""
        ...

    async def link(self, platform: Surface, platform_user_id: str) -> Link | None:
        """The system scope sees every link of its tenant; a user sees their own."""
        ...

    async def sender(self, platform: Surface, platform_user_id: str) -> Sender | None:
        """Who wrote: the owner of the link, its state, and the owner's role. System scope."""
        ...

    async def links(self) -> list[Link]: ...

    async def delete_link(self, platform: Surface, platform_user_id: str) -> bool: ...

    async def put_link_code(self, code_hash: bytes, platform: Surface | None, expires_at: dt.datetime) -> None:
        """A code of this user's, known only by its hash. DuplicateId if a code with this hash is there already."""
        ...

    async def redeem_link_code(self, code_hash: bytes, platform: Surface, now: dt.datetime) -> str | None:
        """Uses the code up and names its owner; None if unknown, expired, used, or for another platform.
        System scope."""
        ...


class QueueOperations(Protocol):
    """Inbox and outbox. Claims are exclusive: of any number of workers, one gets a row. The system scope sees the
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
        """Claims what arrived under this key: the new row, status `claimed`; None if it was claimed before.
        `reply_to` is the place that the answer goes to."""
        ...

    async def settle_inbox(
        self, platform: Surface, key: str, *, status: str, decision: str | None = None, turn_id: str | None = None
    ) -> bool: ...

    async def inbox_row(self, platform: Surface, key: str) -> InboxRow | None: ...

    async def unanswered(self, *, limit: int = 100) -> list[InboxRow]:
        """Rows with the status `accepted` whose turn has ended, or is gone, oldest first. System scope."""
        ...

    async def drop_settled(self, *, before: dt.datetime) -> int:
        """Removes what arrived, and what was sent, before then; what is not answered or delivered stays. How many
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
        """Waits for delivery from now on. With an id that exists already: that row, and nothing is written; DuplicateId
        if the row is another owner's."""
        ...

    async def claim_outbox(
        self, worker: str, *, until: dt.datetime, limit: int = 10, platforms: Sequence[Surface] | None = None
    ) -> list[OutboxRow]:
        """Rows of the tenant that are due (waiting and past their time, or claimed and past their claim), oldest
        first, now claimed by this worker. With `platforms`, only rows for these: a worker claims what it can send.
        What waits for one recipient is delivered in order: a row is due only when no earlier one for its recipient
        is waiting or claimed. A claim taken over counts as an attempt and says in `last_error` that nobody knows what
        came of it. System scope."""
        ...

    async def settle_outbox(
        self,
        outbox_id: str,
        worker: str,
        *,
        status: OutboxStatus,
        next_attempt_at: dt.datetime | None = None,
        error: str | None = None,
    ) -> bool:
        """What came of a claimed row; counts the attempt. False if the claim is no longer this worker's."""
        ...

    async def report_outbox(
        self, outbox_id: str, *, was: OutboxStatus, status: OutboxStatus, error: str | None = None
    ) -> bool:
        """What the platform said later of a row that was tried: it is `status` now if it still is `was`. False if it is
        not. System scope."""
        ...

    async def outbox(self, *, status: OutboxStatus | None = None, limit: int = 100) -> list[OutboxRow]:
        """Newest first."""
        ...

    async def requeue(self, outbox_id: str) -> OutboxRow:
        """A dead row waits again, its attempts reset. NotFound; Conflict if it is not dead."""
        ...


class CredentialOperations(Protocol):
    """A platform's secrets for the tenant, sealed before they come here. System scope only (RoleRefused)."""

    async def put_credentials(self, platform: Surface, key_id: str, sealed: bytes) -> SealedCredentials:
        """Stores or replaces them."""
        ...

    async def credentials(self, platform: Surface) -> SealedCredentials | None: ...

    async def all_credentials(self) -> list[SealedCredentials]:
        """By platform."""
        ...

    async def delete_credentials(self, platform: Surface) -> bool:
        """False if there were none."""
        ...

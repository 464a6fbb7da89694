"""The store's verbs for whoever runs the house: tokens, limits and the record of acts; purging; whole tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Protocol

from threadline.core.access import ApiToken, AuditEntry, NewToken
from threadline.core.portable import Row, RowPage
from threadline.core.sealing import CleanJson


class AccessOperations(Protocol):
    async def create_token(self, new: NewToken) -> ApiToken:
        """Keeps a token by its hash; its owner is made known. DuplicateId if the id or the hash is there already. Admin
        and system scopes only (RoleRefused)."""
        ...

    async def tokens(self) -> list[ApiToken]:
        """Every token of the tenant, revoked and expired ones as well, newest first. Admin and system scopes only
        (RoleRefused)."""
        ...

    async def token_by_hash(self, token_hash: bytes) -> ApiToken | None:
        """Revoked and expired ones as well: the caller judges. System scope only (RoleRefused), because whoever
        presents a token is not known before."""
        ...

    async def revoke_token(self, token_id: str) -> bool:
        """From now on it is revoked. False if there is none, or it was already. Admin and system scopes only
        (RoleRefused)."""
        ...

    async def note_use(self, token_id: str, used_at: dt.datetime) -> None:
        """The token was used then; an earlier time changes nothing. System scope only (RoleRefused)."""
        ...

    async def take_permits(self, key: str, *, window: dt.datetime, wanted: int, limit: int) -> int:
        """How many of the wanted are given: together never more than `limit` under this key in the window that began
        then, whoever asks from whichever process. A window later than this one, which a faster clock has begun, counts
        instead. System scope only (RoleRefused)."""
        ...

    async def drop_permits(self, *, before: dt.datetime) -> int:
        """Forgets windows that began before then; how many. System scope only (RoleRefused)."""
        ...

    async def record_act(
        self, act: str, target: str, details: CleanJson | None = None, *, actor_id: str | None = None
    ) -> AuditEntry:
        """Writes down what the scope's user did: the act as `noun.verb`, as in `token.revoked`, and the id of what it
        was done to. In one transaction with the act itself, or one of them may be lost. Only the system scope may name
        another actor (RoleRefused). The record goes with its tenant, and not with a user."""
        ...

    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[AuditEntry]:
        """Newest first, those before the act with this id. Admin and system scopes only (RoleRefused)."""
        ...


class PurgeOperations(Protocol):
    """Removal for good: no row, index entry or free page keeps the text afterwards."""

    async def purge_thread(self, thread_id: str) -> bool:
        """Removes the thread, deleted or not, and the points that were saved in it. Timelines that no other thread or
        saved point can reach go with it; messages that a branch still shows stay, and so do those of a deleted branch,
        which may come back. False if there was none."""
        ...

    async def purge_user(self, user_id: str) -> int:
        """Everything of this user in the tenant, the user's row as well: how many rows. What they did as administrators
        stays on record. Own user, or system scope."""
        ...

    async def purge_tenant(self) -> int:
        """Everything of the tenant. System scope only (RoleRefused)."""
        ...

    async def row_counts(self) -> dict[str, int]:
        """Rows by table that this scope can see."""
        ...


class TableCopyOperations(Protocol):
    """Whole tables in and out, tenant by tenant, in the form of `core.portable`. System scope only (RoleRefused)."""

    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        """The first rows of a table, or those at the `next_place` of the page before. Timelines come in an order in
        which parents stand before their branches."""
        ...

    async def write_rows(self, table: str, rows: Sequence[Row]) -> None:
        """Adds the rows that are not there yet. What they refer to must be there; timelines are written once before
        the threads and once after, which tells them their thread."""
        ...

"""Store operations for administration: tokens, rate limits, the audit record, purges and copies of whole tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Protocol

from threadline.core.access import ApiToken, AuditEntry, NewToken
from threadline.core.portable import Row, RowPage
from threadline.core.sealing import CleanJson


class AccessOperations(Protocol):
    async def create_token(self, new: NewToken) -> ApiToken:
        """Stores the hash of a token, and the row of its owner if there is none. DuplicateId if the id or the hash
        exists. Admin and system scopes only (RoleRefused)."""
        ...

    async def tokens(self) -> list[ApiToken]:
        """Every token of the tenant, also revoked and expired ones, newest first. Admin and system scopes only
        (RoleRefused)."""
        ...

    async def token_by_hash(self, token_hash: bytes) -> ApiToken | None:
        """Also revoked and expired tokens: the caller checks. System scope only (RoleRefused), because the user is not
        known before the token is read."""
        ...

    async def revoke_token(self, token_id: str) -> bool:
        """Revokes the token. False if there is none, or it is revoked already. Admin and system scopes only
        (RoleRefused)."""
        ...

    async def note_use(self, token_id: str, used_at: dt.datetime) -> None:
        """Stores when the token was last used; an earlier time changes nothing. System scope only (RoleRefused)."""
        ...

    async def take_permits(self, key: str, *, window: dt.datetime, wanted: int, limit: int) -> int:
        """Returns how many of the `wanted` permits are granted: at most `limit` under this key in the window that began
        at `window`, over all processes. If a process with a faster clock has begun a later window, that one counts
        instead. System scope only (RoleRefused)."""
        ...

    async def drop_permits(self, *, before: dt.datetime) -> int:
        """Removes windows that began before `before`; returns how many. System scope only (RoleRefused)."""
        ...

    async def record_act(
        self, act: str, target: str, details: CleanJson | None = None, *, actor_id: str | None = None
    ) -> AuditEntry:
        """Records what the scope's user did: the act as `noun.verb`, for example `token.revoked`, and the id of its
        target. Call it in the transaction of the act itself, so that neither is stored alone. Only the system scope may
        name another actor (RoleRefused). The record is removed with its tenant, not with a user."""
        ...

    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[AuditEntry]:
        """Newest first, older than the act with the id `before`. Admin and system scopes only (RoleRefused)."""
        ...


class PurgeOperations(Protocol):
    """Permanent removal: afterwards no row, index entry or free page contains the text."""

    async def purge_thread(self, thread_id: str) -> bool:
        """Removes the thread, deleted or not, and the points saved in it. Its timelines that no other thread or saved
        point needs are removed; messages that are in a branch stay, also in a deleted branch, which can be restored.
        False if there was none."""
        ...

    async def purge_user(self, user_id: str) -> dict[str, int]:
        """Removes everything of this user in the tenant, including the user's row; returns how many rows of each table.
        The record of their acts stays. Own user, or system scope."""
        ...

    async def purge_tenant(self, *, actor_id: str | None = None) -> dict[str, int]:
        """Removes everything of the tenant; returns how many rows of each table. `acts` lists one entry afterwards,
        that `actor_id` purged the tenant. System scope only (RoleRefused)."""
        ...

    async def row_counts(self) -> dict[str, int]:
        """Rows per table that this scope can see."""
        ...


class TableCopyOperations(Protocol):
    """Copies of whole tables, tenant by tenant, in the form of `core.portable`. System scope only (RoleRefused)."""

    async def read_rows(self, table: str, *, place: Any | None = None, limit: int = 1000) -> RowPage:
        """The first rows of a table, or the rows from the `next_place` of the previous page on. Timelines are ordered
        so that parents come before their branches."""
        ...

    async def write_rows(self, table: str, rows: Sequence[Row]) -> None:
        """Adds the rows that do not exist yet. Rows they refer to must exist; timelines are written once before the
        threads and once after, which sets their thread."""
        ...

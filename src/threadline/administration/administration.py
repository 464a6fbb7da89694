"""Administration: tokens made and revoked, users purged, each written down in the transaction that did it.

A token's text is made here, returned once and kept nowhere. Whoever asks is an administrator of the tenant, or the
operator at a terminal: then the scope is the house's, and the record names the operator.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from threadline.core.access import TOKEN_ROLES, ApiToken, AuditEntry, NewToken, TokenRole, make_token, parse_token
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import check_generated_id, check_id, check_user_id, new_id
from threadline.core.sealing import CleanJson, Sealer
from threadline.core.threads import Scope
from threadline.ports import Clock, Store, Transaction
from threadline.threads.field_checks import admit_name

ACTS_LIMIT = 100


class MadeToken(NamedTuple):
    """A new token, and its text, which nobody will see again."""

    token: ApiToken
    text: str


class Administration:
    """The use cases of one scope. All of them are for administrators."""

    def __init__(
        self, store: Store, sealer: Sealer, clock: Clock, scope: Scope, *, actor_id: str | None = None
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._scope = scope
        self._actor_id = actor_id

    async def create_token(
        self,
        owner_id: str,
        *,
        name: str,
        role: TokenRole = "member",
        expires_at: dt.datetime | None = None,
        acts_for_users: bool = False,
    ) -> MadeToken:
        """InvalidInput for a role there is not, an end that has passed, or an administrator's token that is to act for
        users: whoever stole it would have both powers."""
        self._scope.require("admin")
        if role not in TOKEN_ROLES:
            raise InvalidInput(f"a token's role is one of {', '.join(TOKEN_ROLES)}, not {role!r}")
        if expires_at is not None and expires_at <= self._clock.now():
            raise InvalidInput("the token would have expired already")
        if acts_for_users and role == "admin":
            raise InvalidInput("a token that acts for users is a member's or a viewer's, not an administrator's")
        text = make_token(self._scope.tenant_id)
        read = parse_token(text)
        assert read is not None, "what was just made can be read"
        new = NewToken(
            new_id(),
            read.token_hash,
            check_user_id(owner_id),
            admit_name(self._sealer, "token", name),
            role,
            expires_at,
            acts_for_users,
        )
        acting = {"acts_for_users": True} if acts_for_users else {}
        details = self._details(user=new.owner_id, name=new.name, role=role, **acting)

        async def work(tx: Transaction) -> ApiToken:
            made = await tx.create_token(new)
            await tx.record_act("token.created", made.id, details, actor_id=self._actor_id)
            return made

        return MadeToken(await self._store.transact(self._scope, work), text)

    async def tokens(self) -> list[ApiToken]:
        """Newest first, those that no longer work as well."""
        self._scope.require("admin")
        return await self._store.scoped(self._scope).tokens()

    async def revoke_token(self, token_id: str) -> None:
        """It works no more, from the next request on. NotFound if there is none, or it was revoked before."""
        self._scope.require("admin")
        check_id("token", token_id)

        async def work(tx: Transaction) -> None:
            if not await tx.revoke_token(token_id):
                raise NotFound("token", token_id)
            await tx.record_act("token.revoked", token_id, actor_id=self._actor_id)

        await self._store.transact(self._scope, work)

    async def purge_user(self, user_id: str) -> int:
        """Everything of the user, for good; how many rows. NotFound. For the operator."""
        self._scope.require("system")
        check_user_id(user_id)

        async def work(tx: Transaction) -> int:
            if await tx.user(user_id) is None:
                raise NotFound("user", user_id)
            rows = await tx.purge_user(user_id)
            await tx.record_act("user.purged", user_id, self._details(rows=rows), actor_id=self._actor_id)
            return rows

        return await self._store.transact(self._scope, work)

    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[AuditEntry]:
        """Newest first; a page goes on before the last id of the page above it."""
        self._scope.require("admin")
        if not 1 <= limit <= ACTS_LIMIT:
            raise InvalidInput(f"limit is 1 to {ACTS_LIMIT}, not {limit}")
        if before is not None:
            check_generated_id("an act", before)
        return await self._store.scoped(self._scope).acts(limit=limit, before=before)

    def _details(self, **details: Any) -> CleanJson:
        return self._sealer.json(details, "details")

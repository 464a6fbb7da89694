"""Administration: tokens, users and erasure, with an audit entry in the same transaction.

A token's text is generated here, returned once and not stored. The caller is an administrator of the tenant, or the
operator at a terminal; the operator uses the system scope, and `actor_id` names the operator in the audit log.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from threadline.administration.erasure import Erasure
from threadline.administration.retention import Retention
from threadline.administration.sign_ins import SignInAdministration
from threadline.administration.users import UserAdministration, check_owner
from threadline.core.access import TOKEN_ROLES, ApiToken, AuditEntry, NewToken, TokenRole, make_token, parse_token
from threadline.core.checks import check_choice, check_range
from threadline.core.errors import Conflict, InvalidInput, NotFound
from threadline.core.ids import check_generated_id, check_id, new_id
from threadline.core.retention import RetentionSettings
from threadline.core.sealing import CleanJson, Sealer
from threadline.core.threads import Scope
from threadline.ports import Clock, Store, Transaction
from threadline.signatures import ReceiptSigner
from threadline.threads.field_checks import admit_name

AUDIT_LIMIT = 100
TOKEN_LIFETIME = dt.timedelta(days=90)
"""Of a token whose creator names no expiry: a forgotten token must not work for ever."""


class CreatedToken(NamedTuple):
    """A new token and its text, which is not stored and cannot be shown again."""

    token: ApiToken
    text: str


class Administration:
    """The operations of one scope. RoleRefused unless the scope is an administrator's."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        clock: Clock,
        scope: Scope,
        *,
        actor_id: str | None = None,
        signer: ReceiptSigner | None = None,
        retention: RetentionSettings | None = None,
    ) -> None:
        self._store = store
        self._sealer = sealer.for_tenant(scope.tenant_id)
        self._clock = clock
        self._scope = scope
        self._actor_id = actor_id
        self.users = UserAdministration(store, self._sealer, scope, actor_id=actor_id)
        self.sign_ins = SignInAdministration(store, self._sealer, clock, scope, actor_id=actor_id)
        self.erasure = Erasure(store, self._sealer, clock, signer or ReceiptSigner(), scope, actor_id=actor_id)
        policies = retention or RetentionSettings()
        self.retention = Retention(store, self._sealer, clock, policies, scope, actor_id=actor_id)

    async def create_token(
        self,
        owner_id: str,
        *,
        name: str,
        role: TokenRole = "member",
        expires_at: dt.datetime | UnsetType | None = UNSET,
        acts_for_users: bool = False,
    ) -> CreatedToken:
        """`expires_at` None is never; without it the token expires after TOKEN_LIFETIME. InvalidInput for an unknown
        role, an expiry in the past, or an administrator's token that acts for users: if it were stolen, the thief would
        have both powers. InvalidName for the user `system`. Conflict if the user is disabled."""
        self._scope.require("admin")
        if expires_at is UNSET:
            expires_at = self._clock.now() + TOKEN_LIFETIME
        check_choice("role", role, TOKEN_ROLES)
        if expires_at is not None and expires_at <= self._clock.now():
            raise InvalidInput(f"`expires_at` must be in the future, got {expires_at.isoformat()}")
        if acts_for_users and role == "admin":
            raise InvalidInput("`role` must be member or viewer for a token that acts for users, got admin")
        text = make_token(self._scope.tenant_id)
        parsed = parse_token(text)
        assert parsed is not None, "a generated token is valid"
        new = NewToken(
            new_id(),
            parsed.token_hash,
            check_owner(owner_id),
            admit_name(self._sealer, "token", name),
            role,
            expires_at,
            acts_for_users,
        )
        acting = {"acts_for_users": True} if acts_for_users else {}
        details = self._details(user=new.owner_id, name=new.name, role=role, **acting)

        async def work(tx: Transaction) -> ApiToken:
            owner = await tx.user(new.owner_id)
            if owner is not None and owner.disabled_at is not None:
                raise Conflict(f"user {new.owner_id!r} is disabled: enable them first")
            made = await tx.create_token(new)
            await tx.record_act("token.created", made.id, details, actor_id=self._actor_id)
            return made

        return CreatedToken(await self._store.transact(self._scope, work), text)

    async def tokens(self) -> list[ApiToken]:
        """Newest first, including expired and revoked ones."""
        self._scope.require("admin")
        return await self._store.scoped(self._scope).tokens()

    async def revoke_token(self, token_id: str) -> None:
        """Takes effect with the next request. NotFound if there is no such token or it is already revoked."""
        self._scope.require("admin")
        check_id("token", token_id)

        async def work(tx: Transaction) -> None:
            if not await tx.revoke_token(token_id):
                raise NotFound("token", token_id)
            await tx.record_act("token.revoked", token_id, actor_id=self._actor_id)

        await self._store.transact(self._scope, work)

    async def acts(self, *, limit: int = 50, before: str | None = None) -> list[AuditEntry]:
        """The audit log, newest first. For the next page pass the last id of this one as `before`."""
        self._scope.require("admin")
        check_range("limit", limit, 1, AUDIT_LIMIT)
        if before is not None:
            check_generated_id("audit entry", before)
        return await self._store.scoped(self._scope).acts(limit=limit, before=before)

    def _details(self, **details: Any) -> CleanJson:
        return self._sealer.json(details, "details")

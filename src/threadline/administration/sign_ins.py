"""Sign-ins of people: links that administrators create, sessions that people and administrators end."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from threadline.administration.users import check_owner
from threadline.core.errors import Conflict, InvalidInput, NotFound
from threadline.core.ids import check_id, check_user_id, new_id
from threadline.core.sealing import CleanJson, Sealer
from threadline.core.sign_ins import LINK, LINK_PREFIX, NewSignIn, SignIn, make_link_secret, parse_secret
from threadline.core.threads import Scope
from threadline.ports import Clock, Store, Transaction

_LONGEST_LINK = dt.timedelta(days=30)


class CreatedLink(NamedTuple):
    """A new link and its secret, which is not stored and cannot be shown again."""

    sign_in: SignIn
    secret: str


class SignInAdministration:
    """The operations of one scope. Those for another user: RoleRefused unless the scope is an administrator's."""

    def __init__(
        self, store: Store, sealer: Sealer, clock: Clock, scope: Scope, *, actor_id: str | None = None
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._scope = scope
        self._actor_id = actor_id

    async def create_link(self, user_id: str, lifetime: dt.timedelta) -> CreatedLink:
        """A link that signs the user in once. NotFound; Conflict if the user is disabled; InvalidInput for a lifetime
        over 30 days; InvalidName for the user `system`."""
        self._scope.require("admin")
        check_owner(user_id)
        if not dt.timedelta(0) < lifetime <= _LONGEST_LINK:
            raise InvalidInput(f"a link must expire within 30 days, got {lifetime}")
        secret = make_link_secret(self._scope.tenant_id)
        parsed = parse_secret(secret, LINK_PREFIX)
        assert parsed is not None, "a generated secret is valid"
        link_id, expires_at = new_id(), self._clock.now() + lifetime
        details = self._details(user_id, link_id)

        async def work(tx: Transaction) -> SignIn:
            user = await tx.user(user_id)
            if user is None:
                raise NotFound("user", user_id)
            if user.disabled_at is not None:
                raise Conflict(f"user {user_id!r} is disabled: enable them first")
            new = NewSignIn(link_id, parsed.token_hash, user_id, user.role, LINK, expires_at, is_open=False)
            made = await tx.add_sign_in(new)
            await tx.record_act("sign_in.link_created", user_id, details, actor_id=self._actor_id)
            return made

        return CreatedLink(await self._store.transact(self._scope, work), secret)

    async def list(self, user_id: str) -> list[SignIn]:
        """The user's sessions and links that can still be used, newest first."""
        self._check_user(user_id)
        now = self._clock.now()
        found = await self._store.scoped(self._scope).sign_ins(user_id)
        return [each for each in found if each.revoked_at is None and now < each.expires_at]

    async def revoke(self, user_id: str, sign_in_id: str) -> None:
        """Takes effect with the next request, and for streams at their next check. NotFound if the user has no such
        sign-in, or it is revoked already."""
        self._check_user(user_id)
        check_id("sign-in", sign_in_id)
        details = self._details(user_id, sign_in_id)

        async def work(tx: Transaction) -> None:
            if not await tx.revoke_sign_in(user_id, sign_in_id):
                raise NotFound("sign-in", sign_in_id)
            await tx.record_act("sign_in.revoked", user_id, details, actor_id=self._actor_id)

        await self._store.transact(self._scope, work)

    async def revoke_all(self, user_id: str, *, except_id: str | None = None) -> int:
        """Signs the user out everywhere, but in the session `except_id`; how many sessions and links ended."""
        self._check_user(user_id)

        async def work(tx: Transaction) -> int:
            revoked = await tx.revoke_sign_ins(user_id, except_id=except_id)
            if revoked:
                details = self._sealer.json({"count": revoked}, "details")
                await tx.record_act("sign_in.all_revoked", user_id, details, actor_id=self._actor_id)
            return revoked

        return await self._store.transact(self._scope, work)

    def _check_user(self, user_id: str) -> None:
        if check_user_id(user_id) != self._scope.user_id:
            self._scope.require("admin")

    def _details(self, user_id: str, sign_in_id: str) -> CleanJson:
        return self._sealer.json({"user": user_id, "signIn": sign_in_id}, "details")

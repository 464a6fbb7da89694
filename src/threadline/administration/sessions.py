"""Sessions of people: begun at an identity provider or with a link, found by their secret, ended.

Every sign-in gets a new secret. A session ends by expiry (absolute, and when it was not used for some days), when it is
revoked, and when its user is disabled.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import NamedTuple

from threadline.core.access import TokenRole
from threadline.core.channels import User
from threadline.core.errors import ThreadlineError
from threadline.core.ids import new_id
from threadline.core.oidc import NotAdmitted, Person
from threadline.core.sealing import Sealer
from threadline.core.sign_ins import (
    DEVICE_LENGTH,
    LINK_PREFIX,
    SESSION_PREFIX,
    NewSignIn,
    SignIn,
    SignInSettings,
    make_session_secret,
    parse_secret,
)
from threadline.core.threads import system_scope
from threadline.ports import Clock, Store, Transaction
from threadline.threads.field_checks import admit_name

log = logging.getLogger("threadline.administration")


class Session(NamedTuple):
    tenant_id: str
    sign_in: SignIn


class OpenedSession(NamedTuple):
    """A session that just began. Its secret is not stored and cannot be shown again."""

    session: Session
    secret: str


class Sessions:
    def __init__(self, store: Store, sealer: Sealer, clock: Clock, settings: SignInSettings) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self.settings = settings

    async def begin(self, person: Person, method: str, device: str, new_role: TokenRole | None) -> OpenedSession:
        """For a person whom a provider authenticated. A role in the claims becomes the user's role here, too.
        `new_role` is for a new user without one. NotAdmitted if the user is disabled."""
        secret = make_session_secret(person.tenant_id)
        parsed = parse_secret(secret, SESSION_PREFIX)
        assert parsed is not None, "a generated secret is valid"
        sign_in_id, expires_at = new_id(), self._clock.now() + self.settings.lifetime
        sealer = self._sealer.for_tenant(person.tenant_id)
        details = sealer.json({"signIn": sign_in_id, "method": method}, "details")

        async def work(tx: Transaction) -> SignIn:
            user = await tx.user(person.user_id)
            if user is not None and user.disabled_at is not None:
                raise NotAdmitted("the user is disabled")
            user = await self._update_user(tx, sealer, person, user, new_role)
            new = NewSignIn(
                sign_in_id, parsed.token_hash, user.id, user.role, method, expires_at, device[:DEVICE_LENGTH]
            )
            opened = await tx.add_sign_in(new)
            await tx.record_act("sign_in.opened", user.id, details, actor_id=user.id)
            return opened

        opened = await self._store.transact(system_scope(person.tenant_id), work)
        return OpenedSession(Session(person.tenant_id, opened), secret)

    async def open_link(self, link_secret: str, device: str) -> OpenedSession | None:
        """None if the link is unknown, used, revoked or expired, or its user is disabled."""
        link = parse_secret(link_secret, LINK_PREFIX)
        if link is None:
            return None
        secret = make_session_secret(link.tenant_id)
        parsed = parse_secret(secret, SESSION_PREFIX)
        assert parsed is not None, "a generated secret is valid"
        sealer, expires_at = self._sealer.for_tenant(link.tenant_id), self._clock.now() + self.settings.lifetime

        async def work(tx: Transaction) -> SignIn | None:
            opened = await tx.open_sign_in(
                link.token_hash, secret_hash=parsed.token_hash, expires_at=expires_at, device=device[:DEVICE_LENGTH]
            )
            if opened is not None:
                details = sealer.json({"signIn": opened.id, "method": opened.method}, "details")
                await tx.record_act("sign_in.opened", opened.owner_id, details, actor_id=opened.owner_id)
            return opened

        opened = await self._store.transact(system_scope(link.tenant_id), work)
        return None if opened is None else OpenedSession(Session(link.tenant_id, opened), secret)

    async def find(self, secret: str) -> Session | None:
        """The session of this secret, if it may be used now."""
        parsed = parse_secret(secret, SESSION_PREFIX)
        if parsed is None:
            return None
        # The caller chooses the tenant to look in, but without the secret nothing is found there.
        found = await self._store.scoped(system_scope(parsed.tenant_id)).sign_in_by_hash(parsed.token_hash)
        if found is None or not found.is_valid(self._clock.now(), self.settings.idle):
            return None
        return Session(parsed.tenant_id, found)

    async def end(self, secret: str) -> None:
        """Revokes the session of this secret, if there is one."""
        session = await self.find(secret)
        if session is not None:
            scope = system_scope(session.tenant_id)
            await self._store.scoped(scope).revoke_sign_in(session.sign_in.owner_id, session.sign_in.id)

    async def note_use(self, session: Session, now: dt.datetime) -> None:
        await self._store.scoped(system_scope(session.tenant_id)).note_sign_in_use(session.sign_in.id, now)

    async def _update_user(
        self, tx: Transaction, sealer: Sealer, person: Person, user: User | None, new_role: TokenRole | None
    ) -> User:
        if user is None:
            role = person.role or new_role
            if role is None:
                raise NotAdmitted("the claims give no role")
            return await tx.put_user(User(person.user_id, _display_name(sealer, person), role))
        if person.role is None or person.role == user.role:
            return user
        # The provider decides about roles, so a lower one also counts for older sessions, tokens and platforms.
        changed = await tx.put_user(User(user.id, user.display_name, person.role))
        await tx.limit_tokens(user.id, person.role)
        return changed


def _display_name(sealer: Sealer, person: Person) -> str | None:
    if person.display_name is None:
        return None
    try:
        return admit_name(sealer, "display", person.display_name)
    except ThreadlineError:
        # A name that cannot be stored must not keep its owner out.
        log.info("display name not stored", extra={"tenant_id": person.tenant_id})
        return None

"""Links between accounts on platforms and users, proved by a code.

A user creates a code where they are signed in (web, API, terminal) and sends it from the platform. It works once, for a
few minutes; only its hash is stored, and an account may try a few codes in that time. An account without a link only
learns how to link. Each change is written to the audit log, in the same transaction.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import NamedTuple

from threadline.core import jsontext
from threadline.core.channels import Link, Redeemed
from threadline.core.errors import DuplicateId, InvalidInput, LinkLimited, LinkRefused
from threadline.core.ids import check_user_id
from threadline.core.sealing import CleanJson
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.ports import Clock, Store, Transaction

LINKED_SURFACES: tuple[Surface, ...] = ("slack", "telegram", "whatsapp", "matrix")
CODE_LENGTH = 8
ATTEMPTS = 5

# Crockford's alphabet has no letters that look alike; the letters it leaves out are read as the digits they resemble.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_MEANT = str.maketrans({"O": "0", "I": "1", "L": "1", " ": None, "-": None})


class LinkCode(NamedTuple):
    code: str
    expires_at: dt.datetime


def code_hash(code: str) -> bytes:
    return hashlib.sha256(code.upper().translate(_MEANT).encode()).digest()


class Links:
    def __init__(self, store: Store, clock: Clock, *, lifetime: dt.timedelta) -> None:
        self._store = store
        self._clock = clock
        self._lifetime = lifetime

    async def new_code(self, scope: Scope, platform: str | None = None) -> LinkCode:
        """A code of this user, for one platform or for any. It cannot be read again."""
        surface = None if platform is None else _linked_surface(platform)
        expires_at = self._clock.now() + self._lifetime
        while True:
            code = "".join(secrets.choice(_ALPHABET) for _ in range(CODE_LENGTH))
            try:
                await self._store.scoped(scope).put_link_code(code_hash(code), surface, expires_at)
            except DuplicateId:
                continue
            return LinkCode(code, expires_at)

    async def listed(self, scope: Scope) -> list[Link]:
        """The user's links; for administrators, the tenant's."""
        seen_by = system_scope(scope.tenant_id) if scope.role == "admin" else scope
        return await self._store.scoped(seen_by).links()

    async def find(self, scope: Scope, platform: str, platform_user_id: str, *, anyones: bool = False) -> Link | None:
        """The account's link, if it is the user's own. Administrators and tokens that act for users (`anyones`) see
        every account's."""
        seen_by = system_scope(scope.tenant_id) if anyones or scope.role == "admin" else scope
        return await self._store.scoped(seen_by).link(_linked_surface(platform), check_user_id(platform_user_id))

    async def put(self, scope: Scope, platform: str, platform_user_id: str, owner_id: str, *, revoked: bool) -> Link:
        """Links an account without a code, or blocks it. Administrators only."""
        scope.require("admin")
        surface, sender = _linked_surface(platform), check_user_id(platform_user_id)
        check_user_id(owner_id)

        async def work(tx: Transaction) -> Link:
            link = await tx.put_link(surface, sender, owner_id, "revoked" if revoked else "verified")
            act = "link.revoked" if revoked else "link.made"
            await _record(tx, act, surface, sender, owner_id, actor_id=scope.user_id)
            return link

        return await self._store.transact(system_scope(scope.tenant_id), work)

    async def remove(self, scope: Scope, platform: str, platform_user_id: str) -> bool:
        """Removes a user's own link; administrators remove any. False if there was none, or if it blocks the account
        and the user is no administrator."""
        surface = _linked_surface(platform)

        async def work(tx: Transaction) -> bool:
            return await remove_link(tx, surface, platform_user_id, actor_id=scope.user_id)

        acts_as = system_scope(scope.tenant_id) if scope.role == "admin" else scope
        return await self._store.transact(acts_as, work)

    async def redeem(self, scope: Scope, platform: str, platform_user_id: str, code: str) -> str:
        """Links the account to the user who created the code, for a bot that received it; that user. LinkRefused,
        LinkLimited."""
        scope.require("member")
        surface, sender = _linked_surface(platform), check_user_id(platform_user_id)
        # Raised after the commit: a failed attempt must be counted.
        redeemed = await self._store.transact(
            system_scope(scope.tenant_id), lambda tx: self.redeem_in(tx, surface, sender, code)
        )
        if redeemed.result == "link_limited":
            raise LinkLimited("this account tried too many codes: wait until new ones are made")
        if redeemed.owner_id is None:
            raise LinkRefused("this code is unknown, used or expired, or the account is barred")
        return redeemed.owner_id

    async def redeem_in(self, tx: Transaction, platform: Surface, sender: str, code: str) -> Redeemed:
        """In a system transaction: uses the code up and links the sender to the user who created it."""
        now = self._clock.now()
        if not await self._may_try(tx, platform, sender, now):
            return Redeemed("link_limited")
        known = await tx.link(platform, sender)
        if known is not None and known.state == "revoked":
            return Redeemed("link_refused")
        owner_id = await tx.redeem_link_code(code_hash(code), platform, now)
        if owner_id is None:
            return Redeemed("link_refused")
        await tx.put_link(platform, sender, owner_id, "verified")
        act = "link.made" if known is None or known.owner_id == owner_id else "link.moved"
        await _record(tx, act, platform, sender, owner_id, actor_id=owner_id)
        return Redeemed("linked", owner_id)

    async def _may_try(self, tx: Transaction, platform: Surface, sender: str, now: dt.datetime) -> bool:
        key = _permit("link", platform, sender)
        return await tx.take_permits(key, window=self._window(now), wanted=1, limit=ATTEMPTS) > 0

    async def may_hint_in(self, tx: Transaction, platform: Surface, sender: str, *, is_asked: bool = False) -> bool:
        """Whether an account without a link is told how to link: once in the lifetime of a code, and a few times more
        if it asks, so that it cannot make the bot send many messages."""
        name, limit = ("link-help", ATTEMPTS) if is_asked else ("link-hint", 1)
        window = self._window(self._clock.now())
        return await tx.take_permits(_permit(name, platform, sender), window=window, wanted=1, limit=limit) > 0

    def _window(self, now: dt.datetime) -> dt.datetime:
        seconds = self._lifetime.total_seconds()
        return dt.datetime.fromtimestamp(now.timestamp() // seconds * seconds, dt.UTC)


async def remove_link(tx: Transaction, platform: Surface, platform_user_id: str, *, actor_id: str) -> bool:
    known = await tx.link(platform, platform_user_id)
    # A user who could remove the block could link the account again.
    if known is None or (known.state == "revoked" and tx.scope.role != "system"):
        return False
    if not await tx.delete_link(platform, platform_user_id):
        return False
    named = actor_id if tx.scope.role == "system" else None
    await _record(tx, "link.removed", platform, platform_user_id, known.owner_id, actor_id=named)
    return True


async def _record(
    tx: Transaction, act: str, platform: Surface, sender: str, owner_id: str, *, actor_id: str | None
) -> None:
    details = CleanJson(jsontext.dump({"platform": platform, "user": owner_id}))
    await tx.record_act(act, f"{platform}:{sender}", details, actor_id=actor_id)


def _permit(kind: str, platform: Surface, sender: str) -> str:
    return f"{kind}:{platform}:{hashlib.sha256(sender.encode()).hexdigest()[:32]}"


def _linked_surface(platform: str) -> Surface:
    for surface in LINKED_SURFACES:
        if surface == platform:
            return surface
    raise InvalidInput(f"there is no linking for {platform!r}: it is for {', '.join(LINKED_SURFACES)}")

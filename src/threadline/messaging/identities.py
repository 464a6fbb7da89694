"""The port for who people are, in this process: links of one platform, in the store that holds the threads."""

from __future__ import annotations

from threadline.core.channels import Redeemed
from threadline.core.threads import Scope, system_scope
from threadline.core.turns import Surface
from threadline.messaging.links import Links, remove_link
from threadline.ports import Store, Transaction


class StoredIdentities:
    """`threadline.ports.Identities` for one platform in one tenant."""

    def __init__(self, store: Store, links: Links, tenant_id: str, platform: Surface) -> None:
        self._store = store
        self._links = links
        self._tenant_id = tenant_id
        self._platform = platform
        self._house = system_scope(tenant_id)

    async def find(self, sender: str, *, adopt: bool = False) -> Scope | None:
        house = self._store.scoped(self._house)
        link = await house.link(self._platform, sender)
        if link is None and adopt:
            link = await house.put_link(self._platform, sender, sender, "verified")
        if link is None or link.state != "verified":
            return None
        user = await house.user(link.owner_id)
        return Scope(self._tenant_id, link.owner_id, user.role if user else "member")

    async def redeem(self, sender: str, code: str) -> Redeemed:
        async def work(tx: Transaction) -> Redeemed:
            return await self._links.redeem_in(tx, self._platform, sender, code)

        return await self._store.transact(self._house, work)

    async def may_hint(self, sender: str) -> bool:
        async def work(tx: Transaction) -> bool:
            return await self._links.may_hint_in(tx, self._platform, sender)

        return await self._store.transact(self._house, work)

    async def unlink(self, sender: str, scope: Scope) -> bool:
        async def work(tx: Transaction) -> bool:
            return await remove_link(tx, self._platform, sender, actor_id=scope.user_id)

        return await self._store.transact(scope, work)

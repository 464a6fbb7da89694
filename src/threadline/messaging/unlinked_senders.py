"""UnlinkedSenders: senders that no user here is linked with. They can link themselves, and are told how; nothing more.

What happens here is the house's, because nobody knows yet whose it is.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from threadline.core.channels import InboxRow, LinkResult
from threadline.core.platform_messages import Arrival
from threadline.core.reply_text import (
    HOW_TO_LINK_TEXT,
    LINK_LIMITED_TEXT,
    LINK_REFUSED_TEXT,
    LINKED_TEXT,
    inbox_key,
)
from threadline.core.threads import system_scope
from threadline.messaging.links import Links
from threadline.messaging.outbox import Outbox
from threadline.ports import Store, Transaction

DuplicateDecision: TypeAlias = Literal["duplicate"]

_SAID: dict[LinkResult, str] = {
    "linked": LINKED_TEXT,
    "link_refused": LINK_REFUSED_TEXT,
    "link_limited": LINK_LIMITED_TEXT,
}


class UnlinkedSenders:
    def __init__(self, store: Store, links: Links, outbox: Outbox) -> None:
        self._store = store
        self._links = links
        self._outbox = outbox

    async def link(
        self, tenant_id: str, arrival: Arrival, code: str, correlation_id: str
    ) -> LinkResult | DuplicateDecision:
        """Tries the code that a sender gave, once for each message."""

        async def work(tx: Transaction) -> LinkResult | DuplicateDecision:
            arrived = await claim(tx, arrival, correlation_id)
            if arrived is None:
                return "duplicate"
            redeemed = await self._links.redeem_in(tx, arrival.platform, arrival.sender, code)
            owner_id = redeemed.owner_id or tx.scope.user_id
            await self._outbox.answer(tx, arrived, _SAID[redeemed.result], owner_id=owner_id)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=redeemed.result)
            return redeemed.result

        return await self._store.transact(system_scope(tenant_id), work)

    async def hint(self, tenant_id: str, arrival: Arrival, correlation_id: str) -> None:
        """Tells a sender how to link, once in a while, and only where nobody else reads along."""
        if arrival.shared:
            return

        async def work(tx: Transaction) -> None:
            if not await self._links.may_hint_in(tx, arrival.platform, arrival.sender):
                return
            arrived = await claim(tx, arrival, correlation_id)
            if arrived is not None:
                await self._outbox.answer(tx, arrived, HOW_TO_LINK_TEXT, owner_id=tx.scope.user_id)
                await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision="denied_unverified")

        await self._store.transact(system_scope(tenant_id), work)


async def claim(
    tx: Transaction, arrival: Arrival, correlation_id: str, *, owner_id: str | None = None
) -> InboxRow | None:
    """The arrival, if nobody had it before; a stranger's is nobody's."""
    return await tx.claim_inbox(
        arrival.platform,
        inbox_key(arrival.key),
        fingerprint=arrival.sender,
        correlation_id=correlation_id,
        reply_to=arrival.recipient,
        owner_id=owner_id,
    )

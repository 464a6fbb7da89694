"""UnlinkedSenders: accounts without a link. They can link themselves and are told how; nothing more.

These transactions use the system scope, because the user is not known yet.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from threadline.core.approval_questions import NOT_ASKED_TEXT
from threadline.core.channels import InboxRow, LinkResult
from threadline.core.commands import Command, Misused, parse
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
from threadline.messaging.outbox import Outbox, answer_id
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
    ) -> tuple[LinkResult | DuplicateDecision, str | None]:
        """Tries the code in a message, once; the user that it linked, if any."""

        async def work(tx: Transaction) -> tuple[LinkResult | DuplicateDecision, str | None]:
            arrived = await claim(tx, arrival, correlation_id)
            if arrived is None:
                return "duplicate", None
            redeemed = await self._links.redeem_in(tx, arrival.platform, arrival.sender, code)
            owner_id = redeemed.owner_id or tx.scope.user_id
            await self._outbox.answer(tx, arrived, _SAID[redeemed.result], owner_id=owner_id)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision=redeemed.result)
            return redeemed.result, redeemed.owner_id

        return await self._store.transact(system_scope(tenant_id), work)

    async def deny(
        self, tenant_id: str, arrival: Arrival, correlation_id: str
    ) -> Literal["denied_unverified", "duplicate"]:
        """Claims a message of an account without a link, so that it is never executed later: a repeat is a duplicate,
        also if the account is linked by then. The account is told how to link, at most once in a few minutes."""

        async def work(tx: Transaction) -> Literal["denied_unverified", "duplicate"]:
            arrived = await claim(tx, arrival, correlation_id)
            if arrived is None:
                return "duplicate"
            if arrival.kind == "answer":
                await self._outbox.notify(tx, arrival, NOT_ASKED_TEXT, name=answer_id(arrived.platform, arrived.key))
            elif await self._must_hint(tx, arrival) and not await self._hint_privately(tx, arrival, arrived):
                await self._outbox.answer(tx, arrived, HOW_TO_LINK_TEXT, owner_id=tx.scope.user_id)
            await tx.settle_inbox(arrived.platform, arrived.key, status="done", decision="denied_unverified")
            return "denied_unverified"

        return await self._store.transact(system_scope(tenant_id), work)

    async def _hint_privately(self, tx: Transaction, arrival: Arrival, arrived: InboxRow) -> bool:
        """Where others read, only the sender sees the hint, if the platform can do that."""
        name = answer_id(arrived.platform, arrived.key)
        return arrival.shared and await self._outbox.notify(tx, arrival, HOW_TO_LINK_TEXT, name=name)

    async def _must_hint(self, tx: Transaction, arrival: Arrival) -> bool:
        if not arrival.is_addressed:
            return False
        if arrival.kind == "invitation":
            # One event for each room, so its hint needs no limit of its own.
            return True
        if arrival.kind not in ("message", "unsupported"):
            return False
        said = parse(arrival.text)
        is_asked = isinstance(said, Command | Misused) and said.name in ("help", "link")
        return await self._links.may_hint_in(tx, arrival.platform, arrival.sender, is_asked=is_asked)


async def claim(
    tx: Transaction, arrival: Arrival, correlation_id: str, *, owner_id: str | None = None
) -> InboxRow | None:
    """Claims the arrival; None if it was claimed before. Without an owner it belongs to the system."""
    return await tx.claim_inbox(
        arrival.platform,
        inbox_key(arrival.key),
        fingerprint=arrival.sender,
        correlation_id=correlation_id,
        reply_to=arrival.recipient,
        owner_id=owner_id,
    )

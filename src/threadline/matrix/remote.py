"""The bot of a service elsewhere: the threads and the links are there, and the bot has one token for all its users.

What it must know beside them is in a book of its own, in the folder of its device. A service that is away is waited
for; one that does not take the token, or lets it act for nobody, is said so at once.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from threadline.bootstrap import open_store
from threadline.client import Client
from threadline.clock import SystemClock
from threadline.core.channels import Redeemed
from threadline.core.errors import ImpersonationRefused, LinkLimited, LinkRefused
from threadline.core.masking import SecretMasker
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, system_scope
from threadline.matrix.bindings import SURFACE, Book
from threadline.matrix.bot import Bot
from threadline.matrix.build import Ground, build_bot_on, folder_of
from threadline.matrix.event_handler import through_faults
from threadline.matrix.people import Person
from threadline.messaging.chat_contexts import ChatContexts
from threadline.messaging.links import Links
from threadline.ports import Clock, Store, Transaction
from threadline.settings import Settings

log = logging.getLogger("threadline.matrix")

BOOK = "book.sqlite3"
_MARKS_KEPT = dt.timedelta(days=30)


class RemoteIdentities:
    """`threadline.ports.Identities` of a service. Whom it hinted to, the bot notes in its book."""

    def __init__(self, client: Client, book: Store, links: Links, tenant_id: str) -> None:
        self._client = client
        self._book = book
        self._links = links
        self._tenant_id = tenant_id

    async def find(self, sender: str, *, adopt: bool = False) -> Scope | None:
        link = await self._client.link_of(SURFACE, sender)
        if link is None:
            # The service knows every user that someone acts for.
            return Scope(self._tenant_id, sender) if adopt else None
        return Scope(self._tenant_id, link.user_id) if link.state == "verified" else None

    async def redeem(self, sender: str, code: str) -> Redeemed:
        try:
            return Redeemed("linked", await self._client.redeem_link(SURFACE, sender, code))
        except LinkLimited:
            return Redeemed("link_limited")
        except LinkRefused:
            return Redeemed("link_refused")

    async def may_hint(self, sender: str) -> bool:
        async def work(tx: Transaction) -> bool:
            return await self._links.may_hint_in(tx, SURFACE, sender)

        return await self._book.transact(system_scope(self._tenant_id), work)

    async def unlink(self, sender: str, scope: Scope) -> bool:
        mine = self._client.acting_for(scope.user_id)
        was_linked = await mine.link_of(SURFACE, sender) is not None
        await mine.unlink(SURFACE, sender)
        return was_linked


@asynccontextmanager
async def remote_bot(client: Client, settings: Settings, clock: Clock | None = None) -> AsyncIterator[Bot]:
    """TokenRefused, ImpersonationRefused; SettingsInvalid if the section [matrix] does not say enough."""
    folder, clock = folder_of(settings.matrix), clock or SystemClock()
    kept = msgspec.structs.replace(settings, database=str(folder.path / BOOK))
    store = await open_store(kept, clock)
    try:
        ground = _ground(client, store, kept, clock)
        bot = build_bot_on(ground, folder, settings.matrix)
        await _check_token(client, settings.matrix.user)
        yield bot
    finally:
        await store.close()


async def _check_token(client: Client, user_id: str) -> None:
    acting = client.acting_for(user_id)
    try:
        await through_faults(lambda: acting.link_of(SURFACE, user_id))
    except ImpersonationRefused as exc:
        raise ImpersonationRefused(
            "this token is for one user: make one with `threadline token create --acts-for-users`"
        ) from exc


def _ground(client: Client, store: Store, settings: Settings, clock: Clock) -> Ground:
    tenant_id = settings.tenant
    sealer = Sealer(settings.limits, SecretMasker() if settings.masking.enabled else None)
    links = Links(store, clock, lifetime=dt.timedelta(minutes=settings.channels.link_minutes))

    def platform(person: Person) -> ChatContexts:
        return ChatContexts(client.acting_for(person.scope.user_id))

    async def forget() -> None:
        await store.scoped(system_scope(tenant_id)).drop_settled(before=clock.now() - _MARKS_KEPT)

    return Ground(
        book=Book(store, sealer, tenant_id, anchored=True),
        clock=clock,
        identities=RemoteIdentities(client, store, links, tenant_id),
        platform=platform,
        sweep=forget,
        agent_id=None,
    )

"""The bot's book: which place has which chat context, and what has been done about which event.

It is kept in a store. Where that is the store of the threads, a binding names its thread. Where the threads are with a
service, the book is the bot's own: each of its users has one empty thread there as an anchor for bindings, and the
context is named in the binding's metadata. Nothing that anybody said is in such a book.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from threadline.core.channels import Binding
from threadline.core.sealing import Sealer
from threadline.core.threads import NewThread, Scope, system_scope
from threadline.core.turns import Surface
from threadline.ports import Store, Transaction

SURFACE: Surface = "matrix"
_CHAT = "chat_id"
_SETTLED = "done"

T = TypeVar("T")


class Bindings:
    """Whoever's they are: what is bound for one scope. A binding's `thread_id` is the chat context's id."""

    def __init__(self, tx: Transaction, sealer: Sealer, *, anchored: bool) -> None:
        self._tx = tx
        self._sealer = sealer
        self._anchored = anchored

    async def binding(self, place: str) -> Binding | None:
        found = await self._tx.binding(SURFACE, place)
        return None if found is None else self._read(found)

    async def bindings(self) -> list[Binding]:
        return [self._read(found) for found in await self._tx.bindings(surface=SURFACE)]

    async def bind(self, place: str, chat_id: str, metadata: dict[str, Any], *, label: str | None = None) -> Binding:
        """Instead of what was bound there; a label left out stays. NotFound, DuplicateId for another's place."""
        thread_id = chat_id
        if self._anchored:
            thread_id, metadata = await self._anchor(), {**metadata, _CHAT: chat_id}
        told = self._sealer.json(metadata, "metadata")
        return self._read(await self._tx.bind(SURFACE, place, thread_id, label=label, metadata=told))

    async def _anchor(self) -> str:
        anchor_id = digest_id(f"anchor {self._tx.scope.user_id}")
        if await self._tx.thread(anchor_id) is None:
            await self._tx.create_thread(NewThread(id=anchor_id, state_key=anchor_id))
        return anchor_id

    def _read(self, found: Binding) -> Binding:
        if not self._anchored:
            return found
        metadata = {name: value for name, value in found.metadata.items() if name != _CHAT}
        return msgspec.structs.replace(found, thread_id=found.metadata[_CHAT], metadata=metadata)


class Book:
    """`anchored` says that the threads are elsewhere."""

    def __init__(self, store: Store, sealer: Sealer, tenant_id: str, *, anchored: bool = False) -> None:
        self._store = store
        self._sealer = sealer
        self._anchored = anchored
        self._house = system_scope(tenant_id)
        self.marks = store.scoped(self._house)
        """Where it is marked what was done about events."""

    def of(self, scope: Scope) -> Bindings:
        """For reading."""
        return Bindings(self._store.scoped(scope), self._sealer, anchored=self._anchored)

    async def everyones(self) -> list[Binding]:
        return await self.of(self._house).bindings()

    async def write(self, scope: Scope, work: Callable[[Bindings], Awaitable[T]]) -> T:
        """In one transaction."""

        async def written(tx: Transaction) -> T:
            return await work(Bindings(tx, self._sealer, anchored=self._anchored))

        return await self._store.transact(scope, written)

    async def begin(self, scope: Scope, attempt: str) -> bool:
        """Whether this is the first time that it is begun."""
        tx = self._store.scoped(scope)
        is_first = await tx.claim_inbox(SURFACE, attempt) is not None
        await tx.settle_inbox(SURFACE, attempt, status=_SETTLED)
        return is_first


def digest_id(said: str) -> str:
    """An id that follows from what it is for, so that a repeat finds what the first one made."""
    return f"mx-{hashlib.sha256(said.encode()).hexdigest()[:40]}"

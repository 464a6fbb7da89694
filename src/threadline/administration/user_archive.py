"""Everything of one user in one file: for the user, or for an administrator of the tenant.

The file is JSON Lines: the part about the user (`core.user_archive`), then every thread, archived and deleted ones too,
as `threads export` writes them. It is read page by page, so it may be larger than the memory. What changes while it is
written may be in it or not; each thread is as it was when its lines were written.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterator, Sequence

from threadline.administration.users import check_owner
from threadline.core.errors import NotFound
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, system_scope
from threadline.core.usage import UsageGroup, UsageQuery
from threadline.core.user_archive import PinnedText, UserBlockWriter, UserRecord, ValueRecord
from threadline.core.values import StoredValue, ValueScope
from threadline.ports import Clock, Store, StoreSession, Transaction
from threadline.threads.history_export import export_history
from threadline.threads.user_threads import Threads
from threadline.threads.values import ValueEncoder, Values

_PAGE = 100
# Short lines: the smallest limits of an import must fit them.
_PIECE_BYTES = 32_768
_FIRST_DAY = dt.date(1970, 1, 1)
_BY: tuple[UsageGroup, ...] = ("day", "agent", "model", "kind")


class UserArchive:
    """The operations of one scope."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        clock: Clock,
        encoder: ValueEncoder,
        scope: Scope,
        *,
        actor_id: str | None = None,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._encoder = encoder
        self._scope = scope
        self._actor_id = actor_id

    async def export(self, user_id: str) -> AsyncIterator[bytes]:
        """The lines of the archive. Of another user: RoleRefused unless the scope is an administrator's, and an entry
        in the audit log. NotFound, before the first line."""
        check_owner(user_id)
        if user_id != self._scope.user_id:
            self._scope.require("admin")
        system = self._store.scoped(system_scope(self._scope.tenant_id))
        user = await system.user(user_id)
        if user is None:
            raise NotFound("user", user_id)
        if user_id != self._scope.user_id:
            await self._store.transact(system_scope(self._scope.tenant_id), lambda tx: self._record(tx, user_id))
        record = UserRecord(user.id, user.role, user.display_name, user.disabled_at)
        return self._lines(system, Scope(self._scope.tenant_id, user_id), record)

    async def _record(self, tx: Transaction, user_id: str) -> None:
        await tx.record_act("user.exported", user_id, actor_id=self._actor_id or self._scope.user_id)

    async def _lines(self, system: StoreSession, scope: Scope, user: UserRecord) -> AsyncIterator[bytes]:
        session = self._store.scoped(scope)
        thread_ids = await self._thread_ids(scope)
        async for line in self._user_lines(system, session, scope, user, thread_ids):
            yield line
        for thread_id in thread_ids:
            try:
                async for line in export_history(session, thread_id):
                    yield line
            except NotFound:
                # It was purged after the threads were listed.
                continue

    async def _user_lines(
        self, system: StoreSession, session: StoreSession, scope: Scope, user: UserRecord, thread_ids: Sequence[str]
    ) -> AsyncIterator[bytes]:
        writer = UserBlockWriter()
        yield writer.user(user)
        for pinned in await session.contexts():
            text = PinnedText(pinned.agent_id, pinned.context, pinned.created_at, pinned.updated_at)
            yield writer.line("pinned_text", text)
        for link in await session.links():
            yield writer.line("link", link)
        for place in await session.bindings():
            yield writer.line("place", place)
        for token in await system.tokens():
            if token.owner_id == scope.user_id:
                yield writer.line("token", token)
        for sign_in in await system.sign_ins(scope.user_id):
            yield writer.line("sign_in", sign_in)
        last_day = self._clock.now().date() + dt.timedelta(days=1)
        query = UsageQuery(by=_BY, first_day=_FIRST_DAY, last_day=last_day, user_id=scope.user_id)
        for usage in await session.usage(query):
            yield writer.line("usage", usage)
        async for record in self._values(scope, "user", scope.user_id):
            yield writer.line("value", record)
        for thread_id in thread_ids:
            async for record in self._values(scope, "thread", thread_id):
                yield writer.line("value", record)
        yield writer.end()

    async def _values(self, scope: Scope, value_scope: ValueScope, scope_id: str) -> AsyncIterator[ValueRecord]:
        values = Values(self._store, self._encoder, scope, value_scope, scope_id)
        try:
            namespaces = await values.namespaces()
            for namespace in namespaces:
                cursor: str | None = None
                while True:
                    page = await values.list(namespace, limit=_PAGE, cursor=cursor, with_data=True)
                    for value in page.items:
                        for record in _records(value, scope_id if value_scope == "thread" else None):
                            yield record
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except NotFound:
            # The thread is deleted: its values are not found until it is restored.
            return

    async def _thread_ids(self, scope: Scope) -> list[str]:
        """Of all threads, oldest first. The lists are ordered by activity, so a thread that is used in between moves to
        the front: they are read again until a pass finds nothing new."""
        threads = Threads(self._store, self._sealer, self._clock, scope)
        found: dict[str, None] = {}
        while await self._add_threads(threads, found):
            pass
        return sorted(found)

    async def _add_threads(self, threads: Threads, found: dict[str, None]) -> bool:
        before = len(found)
        for deleted in (False, True):
            cursor: str | None = None
            while True:
                page = await threads.page(limit=_PAGE, cursor=cursor, archived=None, deleted=deleted)
                new = [thread.id for thread in page.items if thread.id not in found]
                found.update(dict.fromkeys(new))
                cursor = page.next_cursor
                # What follows was there in the pass before.
                if cursor is None or (before and not new):
                    break
        return len(found) > before


def _records(value: StoredValue, thread_id: str | None) -> Iterator[ValueRecord]:
    data = value.data or b""
    count = max(1, -(-len(data) // _PIECE_BYTES))
    for number in range(count):
        yield ValueRecord(
            namespace=value.namespace,
            key=value.key,
            version=value.version,
            updated_at=value.updated_at,
            piece=number,
            pieces=count,
            data=data[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES],
            thread_id=thread_id,
            expires_at=value.expires_at,
        )

"""Values that programs keep beside the log, of one user's threads, of the user, or of the tenant.

Values are stored as they are given: no masker, guard or search reads them. They are encrypted if the operator has set a
key, each bound to its address, so that it cannot be moved to another user or key in the database.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence

from threadline.core.arguments import check_int
from threadline.core.checks import check_string
from threadline.core.errors import StoreCorrupt
from threadline.core.messages import from_us, to_us
from threadline.core.sealing import Limits
from threadline.core.threads import Page, Scope
from threadline.core.values import (
    PIECE_BYTES,
    DeleteValue,
    PutValue,
    StoredValue,
    ValueAddress,
    ValueChange,
    ValueRow,
    ValueScope,
    ValueWrite,
    check_change,
    check_namespace,
    check_value_key,
)
from threadline.ports import Cipher, Clock, GatewayValues, Store

LIST_LIMIT = 1_000
_KEYS_LIMIT = 1_000


class ValueEncoder:
    """Turns changes into what a store writes, and what a store read into values."""

    def __init__(self, cipher: Cipher, clock: Clock, limits: Limits, *, encrypts: bool) -> None:
        self._cipher = cipher
        self._clock = clock
        self._limits = limits
        self._encrypts = encrypts

    async def writes(self, scope: Scope, changes: Sequence[ValueChange], thread_id: str = "") -> list[ValueWrite]:
        """InvalidInput, LimitExceeded. `thread_id` is the thread that changes with scope `thread` are about."""
        return [
            await self._write(scope, check_change(change, self._limits.value_bytes), thread_id) for change in changes
        ]

    async def _write(self, scope: Scope, change: ValueChange, thread_id: str) -> ValueWrite:
        ids = {"thread": thread_id, "user": scope.user_id, "tenant": ""}
        address = ValueAddress(change.scope, ids[change.scope], change.namespace, change.key)
        if isinstance(change, DeleteValue):
            return ValueWrite(address, None, expected_version=change.expected_version)
        data, key_id = change.data, None
        if self._encrypts:
            key_id = self._cipher.key_id
            data = await _in_thread(data, lambda: self._cipher.encrypt(change.data, _purpose(scope, address)))
        expires_us = None if change.ttl is None else to_us(self._clock.now() + change.ttl)
        return ValueWrite(address, data, len(change.data), key_id, change.expected_version, expires_us)

    async def value(self, scope: Scope, value_scope: ValueScope, scope_id: str, row: ValueRow) -> StoredValue:
        """SettingsInvalid if its key is not among the operator's. StoreCorrupt if pieces of it are missing."""
        data, key_id = row.data, row.key_id
        if data is not None and key_id is not None:
            sealed, purpose = data, _purpose(scope, ValueAddress(value_scope, scope_id, row.namespace, row.key))
            data = await _in_thread(sealed, lambda: self._cipher.decrypt(key_id, sealed, purpose))
        if data is not None and len(data) != row.size:
            raise StoreCorrupt(f"value {row.key!r} has {len(data)} of {row.size} bytes: restore it from a backup")
        return StoredValue(
            namespace=row.namespace,
            key=row.key,
            version=row.version,
            size=row.size,
            updated_at=from_us(row.updated_us),
            expires_at=None if row.expires_us is None else from_us(row.expires_us),
            data=data,
        )


def _purpose(scope: Scope, address: ValueAddress) -> tuple[str, ...]:
    return ("value", scope.tenant_id, *address)


async def _in_thread(data: bytes, work: Callable[[], bytes]) -> bytes:
    # Encrypting a large value would hold up every other task of the event loop.
    return work() if len(data) <= PIECE_BYTES else await asyncio.to_thread(work)


class Values(GatewayValues):
    """The values of one thread, user or tenant. The contracts are those of `threadline.ports.GatewayValues`."""

    def __init__(
        self, store: Store, encoder: ValueEncoder, scope: Scope, value_scope: ValueScope, scope_id: str
    ) -> None:
        self._tx = store.scoped(scope)
        self._encoder = encoder
        self._scope = scope
        self._place: tuple[ValueScope, str] = (value_scope, scope_id)

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        return (await self.get_many(namespace, [key])).get(key)

    async def get_many(self, namespace: str, keys: Sequence[str]) -> dict[str, StoredValue]:
        check_int("number of keys", len(keys), 0, _KEYS_LIMIT)
        checked = [check_value_key(key) for key in keys]
        rows = await self._tx.read_values(*self._place, check_namespace(namespace), checked)
        return {row.key: await self._encoder.value(self._scope, *self._place, row) for row in rows}

    async def put(
        self,
        namespace: str,
        key: str,
        data: bytes,
        *,
        expected_version: int | None = None,
        ttl: dt.timedelta | None = None,
    ) -> int:
        (version,) = await self.write(PutValue(namespace, key, data, self._place[0], expected_version, ttl))
        return version

    async def delete(self, namespace: str, key: str, *, expected_version: int | None = None) -> bool:
        (version,) = await self.write(DeleteValue(namespace, key, self._place[0], expected_version))
        return version > 0

    async def write(self, *changes: ValueChange) -> list[int]:
        self._scope.require("member")
        thread_id = self._place[1] if self._place[0] == "thread" else ""
        return await self._tx.write_values(await self._encoder.writes(self._scope, changes, thread_id))

    async def list(
        self,
        namespace: str,
        *,
        prefix: str = "",
        limit: int = 100,
        cursor: str | None = None,
        descending: bool = False,
        with_data: bool = False,
    ) -> Page[StoredValue]:
        check_string("prefix", prefix)
        check_int("limit", limit, 1, LIST_LIMIT)
        rows = await self._tx.list_values(
            *self._place,
            check_namespace(namespace),
            prefix=prefix,
            after=None if cursor is None else check_value_key(cursor),
            limit=limit,
            descending=descending,
            with_data=with_data,
        )
        # A value without its data did not fit into this page: the next one begins with it.
        ends_early = with_data and bool(rows) and rows[-1].data is None
        page = rows[:-1] if ends_early else rows
        values = tuple([await self._encoder.value(self._scope, *self._place, row) for row in page])
        return Page(values, values[-1].key if values and (ends_early or len(values) == limit) else None)

    async def namespaces(self) -> Sequence[str]:
        """Those that have values, in their order. NotFound for a thread that is not here."""
        return await self._tx.value_namespaces(*self._place)

"""Values: state that programs keep beside the log, each in one row or, if it is large, in several.

A write checks all its versions before it changes anything. It replaces the rows of a value, because the new value may
have fewer pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

from threadline.core.errors import NotFound, ValueChanged
from threadline.core.values import (
    PIECE_BYTES,
    ValueAddress,
    ValueRow,
    ValueScope,
    ValueWrite,
    check_distinct,
    fitting,
    next_version,
    pieces,
    prefix_end,
)
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/values.sql")
# Greater than every text: BLOBs sort after it.
_NO_END = b""


class ValueOperations(Operations):
    async def write_values(self, writes: Sequence[ValueWrite]) -> list[int]:
        # A large write in the event loop's thread would delay other tasks.
        is_large = sum(write.size for write in writes) > PIECE_BYTES
        write = self._engine.write_large if is_large else self._engine.write
        return await write(write_values, writes)

    async def read_values(
        self, scope: ValueScope, scope_id: str, namespace: str, keys: Sequence[str]
    ) -> list[ValueRow]:
        return await self._engine.read(read_values, scope, scope_id, namespace, keys)

    async def list_values(
        self,
        scope: ValueScope,
        scope_id: str,
        namespace: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int = 100,
        descending: bool = False,
        with_data: bool = False,
    ) -> list[ValueRow]:
        # One value is read where `read_values` reads it: the thread of large reads would double the time.
        read = self._engine.read_large if with_data and limit > 1 else self._engine.read
        return await read(list_values, scope, scope_id, namespace, prefix, after, limit, descending, with_data)

    async def value_namespaces(self, scope: ValueScope, scope_id: str) -> list[str]:
        return await self._engine.read(list_namespaces, scope, scope_id)

    async def drop_expired_values(self) -> int:
        return await self._engine.write_large(drop_expired_values)


def write_values(session: ScopedSession, writes: Sequence[ValueWrite]) -> list[int]:
    check_distinct(write.address for write in writes)
    now_us = session.now_us()
    owners = [_owner(session, write.address.scope, write.address.scope_id, writes=True) for write in writes]
    stored = [session.row(_SQL["find_value"], (session.tenant_id, *write.address)) for write in writes]
    for write, row in zip(writes, stored, strict=True):
        current = 0 if row is None or _is_expired(row[1], now_us) else row[0]
        if write.expected_version is not None and write.expected_version != current:
            raise ValueChanged(write.address.key, current, write.expected_version)
    versions = []
    for write, row, owner_id in zip(writes, stored, owners, strict=True):
        if row is not None:
            session.run(_SQL["remove_value"], (session.tenant_id, *write.address))
        if write.data is None:
            versions.append(0 if row is None or _is_expired(row[1], now_us) else row[0])
        else:
            versions.append(_add(session, write, write.data, owner_id, next_version(now_us, row[0] if row else 0)))
    return versions


def _is_expired(expires_us: int | None, now_us: int) -> bool:
    return expires_us is not None and expires_us <= now_us


def _add(session: ScopedSession, write: ValueWrite, data: bytes, owner_id: str | None, version: int) -> int:
    rest = (owner_id, version, write.size, write.key_id, session.now_us(), write.expires_us)
    session.run_many(
        _SQL["add_piece"],
        [(session.tenant_id, *write.address, n, *rest, piece) for n, piece in enumerate(pieces(data))],
    )
    return version


def _owner(session: ScopedSession, scope: ValueScope, scope_id: str, *, writes: bool = False) -> str | None:
    """The owner of the values of this scope; None for the tenant's."""
    match scope:
        case "thread":
            row = session.row(_SQL["is_live_thread"], (session.tenant_id, scope_id, session.user_id, session.sees_all))
            if row is None:
                raise NotFound("thread", scope_id)
            owner_id: str = row[0]
            return owner_id
        case "user":
            if scope_id != session.user_id and not session.sees_all:
                raise NotFound("user", scope_id)
            if writes:
                session.ensure_owner(scope_id)
            return scope_id
        case _:
            if writes:
                session.scope.require("admin")
                session.ensure_tenant()
            return None


def read_values(
    session: ScopedSession, scope: ValueScope, scope_id: str, namespace: str, keys: Sequence[str]
) -> list[ValueRow]:
    with session.snapshot():
        _owner(session, scope, scope_id)
        found = [_read(session, ValueAddress(scope, scope_id, namespace, key)) for key in sorted(set(keys))]
    return [row for row in found if row is not None]


def _read(session: ScopedSession, address: ValueAddress) -> ValueRow | None:
    found = session.rows(_SQL["read_value"], (session.tenant_id, *address, session.now_us()))
    if not found:
        return None
    data = found[0][-1] if len(found) == 1 else b"".join([row[-1] for row in found])
    return ValueRow._make((*found[0][:-1], data))


def list_values(
    session: ScopedSession,
    scope: ValueScope,
    scope_id: str,
    namespace: str,
    prefix: str,
    after: str | None,
    limit: int,
    descending: bool,
    with_data: bool,
) -> list[ValueRow]:
    end = prefix_end(prefix)
    first = _NO_END if after is None and descending else after or ""
    query = _SQL["list_values_backwards" if descending else "list_values"]
    place = (session.tenant_id, scope, scope_id, namespace, prefix, _NO_END if end is None else end)
    with session.snapshot():
        _owner(session, scope, scope_id)
        found = session.rows(query, (*place, first, session.now_us(), limit))
        if not with_data:
            return [ValueRow._make((*row, None)) for row in found]
        count = fitting([row[3] for row in found])
        read = [_read(session, ValueAddress(scope, scope_id, namespace, row[1])) for row in found[:count]]
    page = [row for row in read if row is not None]
    return [*page, *(ValueRow._make((*row, None)) for row in found[count : count + 1])]


def list_namespaces(session: ScopedSession, scope: ValueScope, scope_id: str) -> list[str]:
    with session.snapshot():
        _owner(session, scope, scope_id)
        found = session.rows(_SQL["list_namespaces"], (session.tenant_id, scope, scope_id, session.now_us()))
    return [namespace for (namespace,) in found]


def drop_expired_values(session: ScopedSession) -> int:
    session.scope.require("system")
    return session.run(_SQL["drop_expired"], (session.tenant_id, session.now_us()))

"""Values: state that programs keep beside the log. Each operation is one call of one function of the schema."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from threadline.core.errors import NotFound, ValueChanged
from threadline.core.messages import to_us
from threadline.core.values import (
    PAGE_BYTES,
    PIECE_BYTES,
    ValueRow,
    ValueScope,
    ValueWrite,
    check_distinct,
    pieces,
    prefix_end,
)
from threadline.stores.postgres.session import Operations
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/values.sql")


class ValueOperations(Operations):
    async def write_values(self, writes: Sequence[ValueWrite]) -> list[int]:
        if not writes:
            return []
        check_distinct(write.address for write in writes)
        if any(write.address.scope == "tenant" for write in writes):
            self.session.scope.require("admin")
        # In the order of their keys: the function locks them in this order, so two calls cannot deadlock.
        order = sorted(range(len(writes)), key=lambda place: writes[place].address)
        found = await self.session.call(
            _SQL["write_values"], self.session.now_us(), *_columns([writes[place] for place in order])
        )
        if found[0]["problem"] is not None:
            _raise_problem(found[0], writes[order[found[0]["place"] - 1]])
        versions = [0] * len(writes)
        for place, row in zip(order, found, strict=True):
            versions[place] = row["version"]
        return versions

    async def read_values(
        self, scope: ValueScope, scope_id: str, namespace: str, keys: Sequence[str]
    ) -> list[ValueRow]:
        place = (self.session.now_us(), scope, scope_id, namespace)
        found = await self.session.call(_SQL["read_values"], *place, tuple(keys), PIECE_BYTES, reads=True)
        return _rows(found, scope_id, namespace)

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
        found = await self.session.call(
            _SQL["list_values"],
            self.session.now_us(),
            scope,
            scope_id,
            namespace,
            prefix,
            prefix_end(prefix),
            after,
            limit,
            descending,
            PAGE_BYTES if with_data else None,
            PIECE_BYTES,
            reads=True,
        )
        return _rows(found, scope_id, namespace)

    async def value_namespaces(self, scope: ValueScope, scope_id: str) -> list[str]:
        place = (self.session.now_us(), scope, scope_id)
        found = await self.session.call(_SQL["list_value_namespaces"], *place, reads=True)
        if found and found[0]["problem"] is not None:
            raise NotFound(found[0]["problem"], scope_id)
        return [row["namespace"] for row in found]

    async def drop_expired_values(self) -> int:
        self.session.scope.require("system")
        (row,) = await self.session.call(_SQL["drop_expired_values"], self.session.now_us())
        removed: int = row["removed"]
        return removed


def _columns(writes: Sequence[ValueWrite]) -> tuple[list[object], ...]:
    """The arrays that `threadline.write_values` takes."""
    cut = [None if write.data is None else list(pieces(write.data)) for write in writes]
    return (
        [write.address.scope for write in writes],
        [write.address.scope_id for write in writes],
        [write.address.namespace for write in writes],
        [write.address.key for write in writes],
        [write.expected_version for write in writes],
        [write.size for write in writes],
        [write.key_id for write in writes],
        [write.expires_us for write in writes],
        [None if found is None else len(found) for found in cut],
        [piece for found in cut if found is not None for piece in found],
    )


def _rows(found: Sequence[asyncpg.Record], scope_id: str, namespace: str) -> list[ValueRow]:
    if found and found[0]["problem"] is not None:
        raise NotFound(found[0]["problem"], scope_id)
    return [
        ValueRow(
            namespace,
            key,
            version,
            size,
            key_id,
            to_us(updated_at),
            None if expires_at is None else to_us(expires_at),
            data,
        )
        for _, key, version, size, key_id, updated_at, expires_at, data in found
    ]


def _raise_problem(row: asyncpg.Record, write: ValueWrite) -> None:
    if row["problem"] != "version":
        raise NotFound(row["problem"], write.address.scope_id)
    assert write.expected_version is not None
    raise ValueChanged(write.address.key, row["version"], write.expected_version)

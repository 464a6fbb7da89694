"""Values of a service. The contract is `threadline.ports.GatewayValues`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec

from threadline import api_value_types as api
from threadline.client.transport import Transport
from threadline.client.values import read
from threadline.core.arguments import check_int
from threadline.core.checks import check_string
from threadline.core.sealing import Limits
from threadline.core.threads import Page
from threadline.core.values import (
    DeleteValue,
    PutValue,
    StoredValue,
    ValueChange,
    ValueScope,
    check_change,
    check_namespace,
    check_value_key,
)
from threadline.ports import GatewayValues

_VALUES = "/api/v1/ai/values"
_LIMIT = Limits().value_bytes
_JSON = {"content-type": "application/json"}


class RemoteValues(GatewayValues):
    def __init__(self, transport: Transport, scope: ValueScope, thread_id: str | None = None) -> None:
        self._transport = transport
        self._scope = scope
        self._thread_id = thread_id

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        query = {**self._place(), "namespace": check_namespace(namespace), "key": check_value_key(key)}
        found = _values(read(await self._transport.call("GET", _VALUES, query=query), api.ValuesResponse))
        return found[0] if found else None

    async def get_many(self, namespace: str, keys: Sequence[str]) -> dict[str, StoredValue]:
        body = {"namespace": check_namespace(namespace), "keys": [check_value_key(key) for key in keys]}
        answer = await self._transport.call("POST", f"{_VALUES}/read", {**body, **self._place()})
        return {value.key: value for value in _values(read(answer, api.ValuesResponse))}

    async def put(
        self,
        namespace: str,
        key: str,
        data: bytes,
        *,
        expected_version: int | None = None,
        ttl: dt.timedelta | None = None,
    ) -> int:
        (version,) = await self.write(PutValue(namespace, key, data, self._scope, expected_version, ttl))
        return version

    async def delete(self, namespace: str, key: str, *, expected_version: int | None = None) -> bool:
        (version,) = await self.write(DeleteValue(namespace, key, self._scope, expected_version))
        return version > 0

    async def write(self, *changes: ValueChange) -> list[int]:
        """Not repeated if the response is lost and a repeat would answer something else."""
        if not changes:
            return []
        body: dict[str, Any] = {"changes": change_bodies(changes)}
        if self._thread_id is not None:
            body["thread"] = self._thread_id
        is_repeatable = all(isinstance(change, PutValue) and change.expected_version is None for change in changes)
        answer = await self._transport.call(
            "POST", _VALUES, headers=_JSON, content=msgspec.json.encode(body), again=is_repeatable
        )
        return read(answer, api.VersionsResponse).versions

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
        query = {
            **self._place(),
            "namespace": check_namespace(namespace),
            "prefix": prefix or None,
            "limit": check_int("limit", limit, 1, 1_000),
            "cursor": None if cursor is None else check_value_key(cursor),
            "descending": descending,
            "data": with_data,
        }
        found = read(await self._transport.call("GET", _VALUES, query=query), api.ValuesResponse)
        return Page(tuple(_values(found)), found.next_cursor)

    def _place(self) -> dict[str, Any]:
        if self._thread_id is not None:
            return {"thread": self._thread_id}
        return {"tenant": True} if self._scope == "tenant" else {}


def change_bodies(changes: Sequence[ValueChange]) -> list[dict[str, Any]]:
    """InvalidInput, LimitExceeded."""
    return [_body(check_change(change, _LIMIT)) for change in changes]


def _body(change: ValueChange) -> dict[str, Any]:
    body: dict[str, Any] = {"namespace": change.namespace, "key": change.key, "scope": change.scope}
    if change.expected_version is not None:
        body["expectedVersion"] = change.expected_version
    if isinstance(change, PutValue):
        body["data"] = change.data
        if change.ttl is not None:
            body["ttlSeconds"] = change.ttl.total_seconds()
    return body


def _values(found: api.ValuesResponse) -> list[StoredValue]:
    return [StoredValue(**msgspec.structs.asdict(info)) for info in found.values]

"""The gateway to values: state that a program keeps beside the log, in process or over HTTP."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from threadline.core.threads import Page
from threadline.core.values import StoredValue, ValueChange


class GatewayValues(Protocol):
    """State that a program keeps beside the log, as bytes under a namespace and a key: that of a thread, of a user, or
    of the whole tenant. It is stored as given: never masked, searched, shown to a model or on the page; encrypted if
    the operator has set a key. It is removed with its thread, user or tenant.

    A version grows with every write and is never used again. `expected_version` makes a write fail with ValueChanged if
    another one came first; 0 means that there must be no value. A namespace is 1 to 128 characters, a key 1 to 512, a
    value up to 64 MB (LimitExceeded). The tenant's values are read by all its users and written by administrators
    (RoleRefused). A value that has expired does not exist."""

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        """None if there is none."""
        ...

    async def get_many(self, namespace: str, keys: Sequence[str]) -> dict[str, StoredValue]:
        """Those that exist, by key; at most 1,000."""
        ...

    async def put(
        self,
        namespace: str,
        key: str,
        data: bytes,
        *,
        expected_version: int | None = None,
        ttl: dt.timedelta | None = None,
    ) -> int:
        """Stores a value; returns its version. It expires after `ttl`, by default never. ValueChanged."""
        ...

    async def delete(self, namespace: str, key: str, *, expected_version: int | None = None) -> bool:
        """False if there was none. ValueChanged."""
        ...

    async def write(self, *changes: ValueChange) -> list[int]:
        """Makes all the changes or none; returns a version for each, that of the removed value for a delete (0 if there
        was none). ValueChanged; InvalidInput for two changes of one value."""
        ...

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
        """The values whose key begins with `prefix`, in the order of their keys. `limit` is 1 to 1,000; with data, a
        page also ends at 8 MB. `cursor` is the `next_cursor` of the page before."""
        ...

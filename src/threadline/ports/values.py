"""Store operations on values: state that programs keep beside the log (see `threadline.core.values`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from threadline.core.values import ValueRow, ValueScope, ValueWrite


class ValueOperations(Protocol):
    """A value of a thread exists as long as the thread and is not found while the thread is deleted. A value of a user
    is that user's alone, also for administrators. A value of the tenant can be read by all its users and written by
    admin and system scopes. A value that has expired does not exist."""

    async def write_values(self, writes: Sequence[ValueWrite]) -> list[int]:
        """Makes all the changes or none, and returns a version for each: the new one of a value that was stored, the
        last one of a value that was removed, 0 if there was none to remove. A new version is greater than every earlier
        one of the same value. ValueChanged: a version is not the expected one, where 0 means no value. NotFound: there
        is no such thread, or the values are another user's. RoleRefused: the tenant's values, without the role.
        InvalidInput: two changes of one value."""
        ...

    async def read_values(
        self, scope: ValueScope, scope_id: str, namespace: str, keys: Sequence[str]
    ) -> list[ValueRow]:
        """Those of the values that exist, with their data, ordered by key. NotFound as in `write_values`."""
        ...

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
        """The values whose key begins with `prefix`, ordered by the code points of their keys, from the one after
        `after`; at most `limit`. With data, a list also ends at the value that would make it larger than
        `core.values.PAGE_BYTES`, if it has one already; that one comes without its data. NotFound as in
        `write_values`."""
        ...

    async def value_namespaces(self, scope: ValueScope, scope_id: str) -> list[str]:
        """The namespaces that have values, in their order. NotFound as in `write_values`."""
        ...

    async def drop_expired_values(self) -> int:
        """Removes values that have expired; returns how many rows. System scope only (RoleRefused)."""
        ...

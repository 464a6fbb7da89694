"""Values: the state that programs keep beside the log of a thread, of a user, or of a whole tenant.

A value is bytes under a namespace and a key. It is opaque: never masked, searched, shown to a model or on the page. Its
version grows with every write and is never used again, also after a delete, so that a write with an expected version
stores nothing if another write came first. A large value is stored in pieces.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from threadline.core.checks import check_bytes, check_choice, check_range, check_string
from threadline.core.errors import InvalidInput, LimitExceeded
from threadline.core.plain_values import PlainValue

ValueScope: TypeAlias = Literal["thread", "user", "tenant"]
VALUE_SCOPES: tuple[ValueScope, ...] = ("thread", "user", "tenant")

PIECE_BYTES = 1_048_576
"""The size of a stored piece: large enough for most values, small enough for a copy to read page by page."""
PAGE_BYTES = 8_388_608
"""A page of values with their data ends once it holds so much, after at least one value."""
NAMESPACE_LENGTH = 128
KEY_LENGTH = 512
_LARGEST_VERSION = 2**63 - 1
_LONGEST_TTL = dt.timedelta(days=36_500)


class StoredValue(PlainValue, frozen=True):
    """A value as it was read. `data` is None in a list that was requested without data; `size` is its length."""

    namespace: str
    key: str
    version: int
    size: int
    updated_at: dt.datetime
    expires_at: dt.datetime | None = None
    data: bytes | None = None


class PutValue(msgspec.Struct, frozen=True):
    """Stores a value. `expected_version` 0 means that there must be none. Without `ttl` the value does not expire."""

    namespace: str
    key: str
    data: bytes
    scope: ValueScope = "thread"
    expected_version: int | None = None
    ttl: dt.timedelta | None = None


class DeleteValue(msgspec.Struct, frozen=True):
    """Removes a value, if there is one."""

    namespace: str
    key: str
    scope: ValueScope = "thread"
    expected_version: int | None = None


ValueChange: TypeAlias = PutValue | DeleteValue


class ValueAddress(NamedTuple):
    """Where a value is. `scope_id` is the id of the thread or the user; '' for the tenant."""

    scope: ValueScope
    scope_id: str
    namespace: str
    key: str


class ValueWrite(NamedTuple):
    """A change as a store gets it. `data` None removes the value; `size` is that of the value before encryption."""

    address: ValueAddress
    data: bytes | None
    size: int = 0
    key_id: str | None = None
    expected_version: int | None = None
    expires_us: int | None = None


class ValueRow(NamedTuple):
    """A value as a store reads it."""

    namespace: str
    key: str
    version: int
    size: int
    key_id: str | None
    updated_us: int
    expires_us: int | None
    data: bytes | None


def check_change(change: object, limit: int) -> ValueChange:
    """InvalidInput or LimitExceeded for a change that cannot be made."""
    if not isinstance(change, PutValue | DeleteValue):
        raise InvalidInput(f"`values` must be PutValue or DeleteValue, got {type(change).__name__}")
    check_choice("scope", change.scope, VALUE_SCOPES)
    check_namespace(change.namespace)
    check_value_key(change.key)
    check_version(change.expected_version)
    if isinstance(change, PutValue):
        check_bytes("data", change.data)
        if len(change.data) > limit:
            raise LimitExceeded("value size in bytes", limit, len(change.data))
        check_ttl(change.ttl)
    return change


def check_version(version: object) -> None:
    if version is not None:
        # A version read from another program may be anything.
        check_range("expected_version", version, 0, _LARGEST_VERSION)  # type: ignore[arg-type]


def check_ttl(ttl: object) -> None:
    if ttl is None:
        return
    if not isinstance(ttl, dt.timedelta):
        raise InvalidInput(f"`ttl` must be a timedelta, got {type(ttl).__name__}")
    if not dt.timedelta(0) < ttl <= _LONGEST_TTL:
        raise InvalidInput(f"`ttl` must be above 0 and at most {_LONGEST_TTL.days} days, got {ttl}")


def check_namespace(namespace: str) -> str:
    return _check_name("namespace", namespace, NAMESPACE_LENGTH)


def check_value_key(key: str) -> str:
    return _check_name("key", key, KEY_LENGTH)


def _check_name(what: str, name: str, most: int) -> str:
    check_string(what, name)
    if not 1 <= len(name) <= most:
        raise InvalidInput(f"`{what}` must be 1–{most} characters, got {len(name)}")
    return name


def check_distinct(addresses: Iterable[ValueAddress]) -> None:
    """InvalidInput if a call would change one value twice: it could not say which change came first."""
    seen: set[ValueAddress] = set()
    for address in addresses:
        if address in seen:
            raise InvalidInput(f"`values` must change each value once, got two changes of {address.key!r:.80}")
        seen.add(address)


def pieces(data: bytes) -> Iterator[bytes]:
    """At least one piece, also of an empty value."""
    for start in range(0, max(len(data), 1), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


def next_version(now_us: int, stored: int) -> int:
    """From the clock, so that a value that was deleted and stored again does not get an earlier version."""
    return max(now_us, stored + 1)


def prefix_end(prefix: str) -> str | None:
    """The first text, in the order of code points, after every text with this prefix; None if there is none."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < 0x10FFFF:
            # Surrogates are no characters: the next one after U+D7FF is U+E000.
            return prefix[:at] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None


def fitting(sizes: Sequence[int]) -> int:
    """How many values of these sizes a page with data holds."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > PAGE_BYTES:
            return max(count, 1)
    return len(sizes)

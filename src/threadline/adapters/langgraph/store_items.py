"""Items of a LangGraph store as values: their keys, their bytes, and what a search compares.

A key of a value is the namespace's labels, each followed by a full stop, another full stop, and the item's key: so the
items below a namespace are one range of keys. Labels contain no full stop and are not empty.
"""

from __future__ import annotations

import datetime as dt
import math
from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from langgraph.store.base import Item, MatchCondition

NAMESPACE = "langgraph.store"
_LONGEST = 512
# A key that is too long is stored as this and its digest. No other key begins so.
_DIGEST = "\uf8ff"
_DIGEST_LENGTH = 65


class StoredItem(msgspec.Struct, array_like=True):
    """`value` is what the serialiser made of it, its kind first. `ttl` is in minutes, times are in microseconds;
    `vectors` has the numbers of each indexed text as 32-bit floats."""

    namespace: tuple[str, ...]
    key: str
    value: tuple[str, bytes]
    created_us: int
    updated_us: int
    ttl: float | None = None
    vectors: list[bytes] = []


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(StoredItem).decode


def prefix_of(namespace: Sequence[str]) -> str:
    """The beginning of the keys of all items in this namespace and below it."""
    return "".join(f"{label}." for label in namespace)


def value_key(namespace: Sequence[str], key: str) -> str:
    whole = f"{prefix_of(namespace)}.{key}"
    if len(whole) <= _LONGEST and not key.startswith(_DIGEST):
        return whole
    return f"{prefix_of(namespace)}.{_DIGEST}{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def namespace_of(value_key: str) -> tuple[str, ...]:
    return tuple(value_key.partition("..")[0].split("."))


def item_fields(stored: StoredItem, value: dict[str, Any]) -> dict[str, Any]:
    return {
        "namespace": stored.namespace,
        "key": stored.key,
        "value": value,
        "created_at": _moment(stored.created_us),
        "updated_at": _moment(stored.updated_us),
    }


def to_item(stored: StoredItem, value: dict[str, Any]) -> Item:
    return Item(**item_fields(stored, value))


def pack_vector(numbers: Sequence[float]) -> bytes:
    return array("f", numbers).tobytes()


def similarity(query: Sequence[float], packed: Sequence[bytes]) -> float | None:
    """The best cosine similarity of an item's texts to the query; None for an item without any."""
    return max((_cosine(query, array("f", each)) for each in packed), default=None)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=False)) / norms if norms else 0.0


def passes(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether a value passes a filter. A key with full stops that the value does not have is a path into it."""
    return all(_matches(_look_up(value, name), wanted) for name, wanted in (filter or {}).items())


def _look_up(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping) or name in value or "." not in name:
        return value.get(name) if isinstance(value, Mapping) else None
    head, _, rest = name.partition(".")
    return _look_up(value.get(head), rest)


def _matches(value: Any, wanted: Any) -> bool:
    """Plain data must be equal, an object with operators must hold."""
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_holds(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(_matches(value.get(name), each) for name, each in wanted.items())
    if isinstance(wanted, list | tuple):
        is_list = isinstance(value, list | tuple) and len(value) == len(wanted)
        return is_list and all(map(_matches, value, wanted))
    return bool(value == wanted)


def _holds(value: Any, operator: str, operand: Any) -> bool:
    match operator:
        case "$eq":
            return bool(value == operand)
        case "$ne":
            return bool(value != operand)
        case "$gt" | "$gte" | "$lt" | "$lte":
            try:
                left, right = float(value), float(operand)
            except (TypeError, ValueError):
                return False
            return {"$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}[operator]
    # As LangGraph's own stores do.
    raise ValueError(f"filter operator must be $eq, $ne, $gt, $gte, $lt or $lte, got {operator!r}")


def is_match(condition: MatchCondition, namespace: Sequence[str]) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    compared = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(compared, path, strict=True))


def common_prefix(conditions: Sequence[MatchCondition]) -> tuple[str, ...]:
    """The labels that every matching namespace begins with."""
    longest: tuple[str, ...] = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            fixed = condition.path[: next((n for n, label in enumerate(condition.path) if label == "*"), None)]
            longest = max(longest, tuple(fixed), key=len)
    return longest


def _moment(microseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)

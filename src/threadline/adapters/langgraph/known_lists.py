"""What was computed for a list at the step before, so that a list which grows costs only what is new.

A graph gives its checkpointer the whole list at each step. Elements that did not change are not serialised, digested or
put into blocks again. They are compared by content and not by identity, because a graph may change a message in place.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage

from threadline.adapters.langgraph.list_blocks import Digests, Typed

_KNOWN_BYTES = 67_108_864
# Without references between objects: equal content gives equal bytes.
_MARSHAL_VERSION = 2

Fingerprint: TypeAlias = tuple[type, bytes]
ListKey: TypeAlias = tuple[str, str, str]
"""Thread, namespace of the graph, channel."""


class KnownList:
    """The elements of a list, serialised. `digests` are those of its blocks."""

    def __init__(self) -> None:
        self.typed: list[Typed] = []
        self.digests: Digests = {}
        self.size = 0
        self._fingerprints: list[Fingerprint | None] = []
        self._ids: list[str] = []

    def update(self, values: Sequence[Any], serialise: Callable[[Any], Typed]) -> None:
        """Makes this the list of these values. Everything is computed again from the first that differs."""
        found = [fingerprint(value) for value in values]
        same = _same(found, self._fingerprints)
        new = [serialise(value) for value in values[same:]]
        self.typed = self.typed[:same] + new
        self._fingerprints = found
        self._ids = self._ids[:same]
        self.digests = {place: digest for place, digest in self.digests.items() if sum(place) <= same}
        self.size = sum(len(data) for _, data in self.typed) + sum(len(each[1]) for each in found if each)

    def ids(self) -> list[str]:
        """A digest of each element and of all before it."""
        before = bytes.fromhex(self._ids[-1].removeprefix("lg.")) if self._ids else b""
        for kind, data in self.typed[len(self._ids) :]:
            before = blake2b(data, digest_size=16, key=before, person=kind.encode()[:16]).digest()
            self._ids.append(f"lg.{before.hex()}")
        return self._ids


class KnownLists:
    """The lists that were stored last, up to a size in memory."""

    def __init__(self) -> None:
        self._lists: OrderedDict[ListKey, KnownList] = OrderedDict()
        self._size = 0

    def update(self, key: ListKey, values: Sequence[Any], serialise: Callable[[Any], Typed]) -> KnownList:
        known = self._lists.pop(key, None) or KnownList()
        self._size -= known.size
        known.update(values, serialise)
        self._lists[key] = known
        self._size += known.size
        # The list of this step may itself be larger: it is returned, but not remembered.
        while self._size > _KNOWN_BYTES:
            self._size -= self._lists.popitem(last=False)[1].size
        return known


def fingerprint(value: Any) -> Fingerprint | None:
    """Equal only for values with equal content; None for one that is not made of plain values."""
    content = (value.__dict__, value.__pydantic_extra__) if isinstance(value, BaseMessage) else value
    try:
        return type(value), marshal.dumps(content, _MARSHAL_VERSION)
    except ValueError:
        return None


def _same(found: Sequence[Fingerprint | None], known: Sequence[Fingerprint | None]) -> int:
    """How many elements at the beginning are the same."""
    for place, (new, old) in enumerate(zip(found, known, strict=False)):
        if new is None or new != old:
            return place
    return min(len(found), len(known))

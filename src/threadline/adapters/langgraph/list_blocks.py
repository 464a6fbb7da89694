"""Long lists of a graph's state, stored in blocks that later versions of the list share.

A list that grows by a message at each step would otherwise be stored whole at each step. Full groups of 16, 256 and
4,096 elements are blocks, stored once under the digest of their content; the rest is stored with the version. So a
version costs a few elements and one digest for each block, and reading it costs a few reads, however long it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec

Typed: TypeAlias = tuple[str, bytes]
"""A serialised value: the serialiser's name for its form, and its bytes."""
Entry: TypeAlias = bytes | Typed
"""A digest of a block, or an element."""
Place: TypeAlias = tuple[int, int]
"""A block's first element, and how many it has."""
Digests: TypeAlias = dict[Place, bytes]

SHORTEST = 17
"""Shorter lists are stored whole."""
_GROUPS = (4_096, 256, 16)
# Larger groups are not worth a block of their own: their elements are large enough to be blocks.
_LARGEST_BLOCK = 1_048_576
# An element that would make each version expensive, and is worth a row of its own.
_LARGE_ELEMENT = 4_096

_encode = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(list[Typed]).decode


def split(elements: Sequence[Typed], digests: Digests) -> tuple[list[Entry], dict[str, Place]]:
    """The entries of the list, and where its blocks are, by key. The same elements give the same blocks. `digests` are
    those known before, and get those that are computed."""
    entries: list[Entry] = []
    blocks: dict[str, Place] = {}
    ends = [0, *itertools.accumulate(len(data) for _, data in elements)]
    at = 0
    while at < len(elements):
        group = _group(at, ends)
        if group == 1 and len(elements[at][1]) <= _LARGE_ELEMENT:
            entries.append(elements[at])
        else:
            place = (at, group)
            digest = digests.get(place)
            if digest is None:
                digest = digests[place] = blake2b(block_data(elements, place), digest_size=16).digest()
            entries.append(digest)
            blocks[digest.hex()] = place
        at += group
    return entries, blocks


def block_data(elements: Sequence[Typed], place: Place) -> bytes:
    at, length = place
    return _encode(elements[at : at + length])


def _group(at: int, ends: Sequence[int]) -> int:
    for group in _GROUPS:
        if at % group == 0 and at + group < len(ends) and ends[at + group] - ends[at] <= _LARGEST_BLOCK:
            return group
    return 1


def block_keys(entries: Sequence[Entry]) -> list[str]:
    return [entry.hex() for entry in entries if isinstance(entry, bytes)]


def join(entries: Sequence[Entry], blocks: Mapping[str, bytes]) -> list[Typed]:
    """The elements. KeyError if a block is missing."""
    elements: list[Typed] = []
    for entry in entries:
        if isinstance(entry, bytes):
            elements += _decode_block(blocks[entry.hex()])
        else:
            elements.append(entry)
    return elements


def joined(elements: Sequence[Typed]) -> Typed | None:
    """The elements as one serialised list, which is read in one call; None if they are not all msgpack."""
    if any(kind != "msgpack" for kind, _ in elements):
        return None
    # An array of MessagePack is its length, in a head of five bytes, and its elements.
    return "msgpack", b"".join((b"\xdd", len(elements).to_bytes(4, "big"), *(data for _, data in elements)))

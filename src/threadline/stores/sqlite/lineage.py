"""Lineages as they are stored: 8 bytes for each ancestor, the timeline's number and the last seq taken from it.

The packed form is also what SQLite's `carray` takes, so a query walks a history of a thousand branches without a
Python object for any of them. A timeline holds only seqs above its fork, so a range needs no lower end: the segment
(timeline, top) is all its messages up to `top`. Tops fall from the nearest ancestor to the furthest.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import apsw

_TOP = 0xFFFFFFFF


class Place(NamedTuple):
    """A timeline and a seq on it; the packed form of one ancestor."""

    timeline_no: int
    seq: int


def segments(timeline_no: int, top: int, ancestors: bytes, *, first: int = 0) -> array[int]:
    """The segments of a history that hold seqs `first` to `top`, newest first. `top` is at most the head's seq."""
    if top < max(first, 0):
        return array("q")
    found = _unpack(ancestors)
    if found and top <= found[0] & _TOP:
        del found[: _holding(found, top)]
        found[0] = _pack(found[0] >> 32, top)
    else:
        found.insert(0, _pack(timeline_no, top))
    if first > 0:
        del found[_holding(found, first) + 1 :]
    return found


def ancestors_of_branch(timeline_no: int, seq: int, ancestors: bytes) -> bytes:
    """The lineage of a timeline that forks at a point; a fork inside an ancestor's range hangs on that ancestor."""
    if seq < 0:
        return b""
    # In the timeline's own part or in its parent's, as nearly always: what lies before is taken over as it stands.
    fork = nearest(ancestors)
    if fork is None or seq > fork.seq:
        return _pack(timeline_no, seq).to_bytes(8, "little") + ancestors
    before = nearest(ancestors[8:])
    if before is None or seq > before.seq:
        return _pack(fork.timeline_no, seq).to_bytes(8, "little") + ancestors[8:]
    return _bytes(segments(timeline_no, seq, ancestors))


def holder(timeline_no: int, seq: int, ancestors: bytes) -> int:
    """Which timeline of the history the message with this seq stands on."""
    return segments(timeline_no, seq, ancestors, first=seq)[0] >> 32


def nearest(ancestors: bytes) -> Place | None:
    """Where the timeline forks; None if it begins with nothing."""
    if not ancestors:
        return None
    packed = int.from_bytes(ancestors[:8], "little")
    return Place(packed >> 32, packed & _TOP)


def tops(timeline_no: int, ancestors: bytes) -> dict[int, int]:
    """How far each timeline of the history belongs to it, by number; the last one's end is open."""
    found = {packed >> 32: packed & _TOP for packed in _unpack(ancestors)}
    found[timeline_no] = _TOP
    return found


def bound(found: array[int]) -> object:
    """The segments as a parameter of a query."""
    return apsw.carray(found)


def unpack(ancestors: bytes) -> list[Place]:
    """The ancestors, nearest first."""
    return [Place(packed >> 32, packed & _TOP) for packed in _unpack(ancestors)]


def pack(places: Iterable[Place]) -> bytes:
    return _bytes(array("q", [_pack(*place) for place in places]))


def _holding(found: array[int], seq: int) -> int:
    """The last of the segments whose top is at or above `seq`."""
    return bisect_right(found, -seq, key=lambda packed: -(packed & _TOP)) - 1


def _pack(timeline_no: int, top: int) -> int:
    return timeline_no << 32 | top


def _unpack(ancestors: bytes) -> array[int]:
    found = array("q", ancestors)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _bytes(found: array[int]) -> bytes:
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()

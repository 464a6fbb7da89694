"""Packed lineages against the core's: the same ancestors, the same segments, for any history of forks."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.lineage_model import lineage_of_branch
from threadline.core.threads import Point, Segment
from threadline.core.threads import segments as core_segments
from threadline.stores.sqlite import lineage


class Line(NamedTuple):
    """A timeline in both forms, and how many messages its history holds."""

    number: int
    ancestors: bytes
    points: tuple[Point, ...]
    length: int


class Fork(NamedTuple):
    """Fork at this share of the history, then write so many messages."""

    share: float
    written: int


forks = st.lists(st.builds(Fork, st.floats(-0.2, 1), st.integers(0, 5)), max_size=12)


def grown(steps: list[Fork]) -> Line:
    line = Line(1, b"", (), 4)
    for number, step in enumerate(steps, start=2):
        seq = max(-1, min(line.length - 1, round(step.share * line.length) - 1))
        parent = Point(str(line.number), seq)
        ancestors = lineage.ancestors_of_branch(line.number, seq, line.ancestors)
        line = Line(number, ancestors, lineage_of_branch(parent, line.points), seq + 1 + step.written)
    return line


def as_points(packed: bytes) -> tuple[Point, ...]:
    pairs = [int.from_bytes(packed[at : at + 8], "little") for at in range(0, len(packed), 8)]
    return tuple(Point(str(pair >> 32), pair & 0xFFFFFFFF) for pair in pairs)


@given(forks)
def test_a_branchs_ancestors_are_the_cores(steps: list[Fork]) -> None:
    line = grown(steps)
    assert as_points(line.ancestors) == line.points
    nearest = lineage.nearest(line.ancestors)
    assert (nearest and (str(nearest.timeline_no), nearest.seq)) == (line.points[0] if line.points else None)


@given(forks, st.integers(0, 30), st.integers(-1, 30))
def test_a_ranges_segments_are_the_cores(steps: list[Fork], first: int, last: int) -> None:
    line = grown(steps)
    last = min(last, line.length - 1)
    packed = lineage.segments(line.number, last, line.ancestors, first=first)
    tops = [Point(str(pair >> 32), pair & 0xFFFFFFFF) for pair in packed]
    expected = core_segments(str(line.number), line.points, first, last) if first <= last else ()
    assert tops == [Point(timeline, top) for timeline, _, top in reversed(expected)]


@given(forks, st.integers(0, 30))
def test_each_seq_has_one_holder(steps: list[Fork], seq: int) -> None:
    line = grown(steps)
    if seq < line.length:
        (segment,) = core_segments(str(line.number), line.points, seq, seq)
        assert segment == Segment(str(lineage.holder(line.number, seq, line.ancestors)), seq, seq)
        belongs = lineage.tops(line.number, line.ancestors)
        assert belongs[int(segment.timeline_id)] >= seq

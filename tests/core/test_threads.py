"""Lineages: for any forks, the ranges of a history contain exactly its messages. And scopes and roles."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lineage_model import lineage_of_branch
from threadline.core.errors import InvalidName, RoleRefused
from threadline.core.threads import Lineage, Point, Scope, UserRole, segments, system_scope


class Drawn(NamedTuple):
    """A timeline beside the plain list that its history is."""

    id: str
    lineage: Lineage
    own: dict[int, str]
    history: list[str]


@st.composite
def families(draw: st.DrawFn) -> list[Drawn]:
    """Timelines that fork anywhere in one another, each with some messages of its own."""
    family = [Drawn("t0", (), {}, [])]
    for number in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from(family))
        at = draw(st.integers(-1, len(parent.history) - 1))
        lineage = lineage_of_branch(Point(parent.id, at), parent.lineage)
        family.append(Drawn(f"t{number + 1}", lineage, {}, parent.history[: at + 1]))
        for grower in (family[-1], draw(st.sampled_from(family))):
            for _ in range(draw(st.integers(0, 3))):
                grower.own[len(grower.history)] = text = f"{grower.id}/{len(grower.history)}"
                grower.history.append(text)
    return family


def read(family: list[Drawn], timeline: Drawn, first: int, last: int) -> list[tuple[int, str]]:
    """What the ranges of the history hold, as a store would read them."""
    by_id = {drawn.id: drawn for drawn in family}
    return [
        (seq, by_id[segment.timeline_id].own[seq])
        for segment in segments(timeline.id, timeline.lineage, first, last)
        for seq in range(segment.first, segment.last + 1)
    ]


@given(families(), st.data())
def test_the_ranges_of_a_history_are_the_history(family: list[Drawn], data: st.DataObject) -> None:
    for timeline in family:
        whole = list(enumerate(timeline.history))
        assert read(family, timeline, 0, len(whole) - 1) == whole
        first = data.draw(st.integers(0, len(whole)))
        last = data.draw(st.integers(-1, len(whole) - 1))
        assert read(family, timeline, first, last) == whole[first : last + 1]


@given(families())
def test_no_inherited_range_is_empty(family: list[Drawn]) -> None:
    for timeline in family:
        seqs = [point.seq for point in timeline.lineage] + [-1]
        assert seqs == sorted(set(seqs), reverse=True)
        assert all(set(range(below + 1, top + 1)) <= by_own(family, owner) for owner, top, below in lent(timeline))


def lent(timeline: Drawn) -> list[tuple[str, int, int]]:
    """Each ancestor with the last seq taken from it, and the seq below the first."""
    belows = [*(point.seq for point in timeline.lineage[1:]), -1]
    return [(point.timeline_id, point.seq, below) for point, below in zip(timeline.lineage, belows, strict=False)]


def by_own(family: list[Drawn], timeline_id: str) -> set[int]:
    return set(next(drawn.own for drawn in family if drawn.id == timeline_id))


@given(families())
def test_a_history_has_as_few_ranges_as_possible(family: list[Drawn]) -> None:
    for timeline in family:
        found = segments(timeline.id, timeline.lineage, 0, len(timeline.history) - 1)
        assert len(found) <= len(timeline.lineage) + 1
        assert all(one.timeline_id != two.timeline_id for one, two in pairwise(found))


def test_a_fork_inside_a_grandparents_range_refers_to_the_grandparent() -> None:
    child = lineage_of_branch(Point("root", 5), ())
    grandchild = lineage_of_branch(Point("child", 9), child)
    assert grandchild == (Point("child", 9), Point("root", 5))
    assert lineage_of_branch(Point("grandchild", 3), grandchild) == (Point("root", 3),)
    assert lineage_of_branch(Point("grandchild", 7), grandchild) == (Point("child", 7), Point("root", 5))
    assert lineage_of_branch(Point("grandchild", -1), grandchild) == ()


@pytest.mark.parametrize(("tenant_id", "user_id"), [("", "a"), ("A", "a"), ("a", ""), ("a", "\n"), ("a'--", "a")])
def test_a_scope_needs_valid_ids(tenant_id: str, user_id: str) -> None:
    with pytest.raises(InvalidName):
        Scope(tenant_id, user_id)


@pytest.mark.parametrize(("role", "may"), [("viewer", 1), ("member", 2), ("admin", 3), ("system", 4)])
def test_a_role_includes_the_roles_below_it(role: UserRole, may: int) -> None:
    roles: tuple[UserRole, ...] = ("viewer", "member", "admin", "system")
    scope = Scope(role=role)
    for allowed in roles[:may]:
        scope.require(allowed)
    for refused in roles[may:]:
        with pytest.raises(RoleRefused, match=f"role must be {refused}, yours is {role}"):
            scope.require(refused)


def test_the_system_scope_belongs_to_one_tenant() -> None:
    assert system_scope("acme") == Scope("acme", "system", "system")

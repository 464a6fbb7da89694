"""The reference for lineages of branches: plain Python, against which tests check what the stores compute in SQL."""

from __future__ import annotations

from threadline.core.threads import Lineage, Point


def lineage_of_branch(parent: Point, parent_lineage: Lineage) -> tuple[Point, ...]:
    """The ancestors of a timeline that forks at `parent`. A fork inside a grandparent's range refers to that one."""
    if parent.seq < 0:
        return ()
    fork = parent_lineage[0].seq if parent_lineage else -1
    if parent.seq > fork:
        return (parent, *parent_lineage)
    for index, ancestor in enumerate(parent_lineage):
        below = parent_lineage[index + 1].seq if index + 1 < len(parent_lineage) else -1
        if parent.seq > below:
            return (Point(ancestor.timeline_id, parent.seq), *parent_lineage[index + 1 :])
    raise AssertionError("unreachable: seq -1 was handled above")

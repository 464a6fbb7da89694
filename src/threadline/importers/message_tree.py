"""Messages that name their parents, as the items of a history: branches become timelines.

Codecs give nodes in the order of their source. A node without a role is no message: its children belong to its nearest
ancestor that is one, and its parts go to the next message below it, or else to the one above.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from threadline.core.errors import InvalidInput, quote
from threadline.core.history import (
    History,
    HistoryItem,
    MessageRecord,
    PastTurn,
    RecordPoint,
    ThreadRecord,
    TimelineRecord,
)
from threadline.core.ids import is_id
from threadline.core.messages import NewMessage
from threadline.core.parts import Part, ToolPart
from threadline.core.turns import Surface
from threadline.importers.part_limits import fit_parts
from threadline.importers.report import SourceReport


class Node(NamedTuple):
    id: str
    parent: str | None
    role: Literal["user", "assistant"] | None
    parts: tuple[Part, ...] = ()
    created_at: dt.datetime | None = None
    model: str | None = None
    usage: Mapping[str, int] = {}
    version: str = ""
    """Changes when the message has grown in its source: a stored one never changes, so it is another message then."""


def history_of(
    origin: str,
    record: ThreadRecord,
    nodes: Iterable[Node],
    report: SourceReport,
    *,
    leaf: str | None = None,
    surface: Surface = "api",
) -> History | None:
    """None if there is no message. `leaf` is where the source ends: its timeline is the present one. InvalidInput if a
    message is its own ancestor."""
    tree = _Tree(nodes, report)
    if not tree.messages:
        return None
    lines, line_of = tree.lines()
    present = line_of.get(tree.above(leaf) or "") if leaf is not None else None
    items: list[HistoryItem] = [*tree.turns(origin, surface)]
    times = [node.created_at for node in tree.messages.values() if node.created_at is not None]
    for key, (parent, ids) in lines.items():
        items.append(TimelineRecord(key, parent))
        items += [MessageRecord(_message(tree.messages[id], report), tree.turn_id(origin, id)) for id in ids]
    record = msgspec.structs.replace(
        record,
        timeline=present,
        created_at=record.created_at or (min(times) if times else None),
        updated_at=record.updated_at or (max(times) if times else None),
    )
    return History(record, items, origin)


def _message(node: Node, report: SourceReport) -> NewMessage:
    assert node.role is not None
    parts = fit_parts(node.parts, report)
    is_open = any(isinstance(part, ToolPart) and not part.is_answered for part in parts)
    # A call without its result is another message than the same call with it.
    id = f"{node.id}{node.version}{':open' if is_open else ''}"
    if not is_id(id):
        id = hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:40]
    return NewMessage(node.role, parts, id, {"model": node.model} if node.model else None, node.created_at)


class _Tree:
    def __init__(self, nodes: Iterable[Node], report: SourceReport) -> None:
        self._report = report
        self._nodes: dict[str, Node] = {}
        for node in nodes:
            if node.id in self._nodes:
                report.notes["duplicate ids"] += 1
            else:
                self._nodes[node.id] = node
        self._above: dict[str, str | None] = {}
        self.messages = {id: node for id, node in self._nodes.items() if node.role is not None}
        self._parents = {id: self._parent_of(id) for id in self.messages}
        self._hand_over_parts()
        self._lines = self._find_lines()
        self._turn_of = self._find_turns()
        self._answered: set[str] = set()

    def above(self, id: str | None) -> str | None:
        """The node itself if it is a message, else its nearest ancestor that is one."""
        path: list[str] = []
        seen: set[str] = set()
        while id is not None and id not in self._above:
            node = self._nodes.get(id)
            if node is None:
                self._report.notes["messages whose parent is missing"] += 1
                id = None
                break
            if node.role is not None:
                break
            if id in seen:
                raise InvalidInput(f"message {quote(id)} must not be its own ancestor")
            seen.add(id)
            path.append(id)
            id = node.parent
        found = self._above.get(id, id) if id is not None else None
        self._above.update(dict.fromkeys(path, found))
        return found

    def _parent_of(self, id: str) -> str | None:
        return self.above(self._nodes[id].parent)

    def _hand_over_parts(self) -> None:
        waiting: dict[str, list[Part]] = {}
        """Parts by the node without a role whose next message gets them."""
        for id, node in self._nodes.items():
            if node.role is None and node.parts:
                waiting.setdefault(id, []).extend(node.parts)
        passed: set[str] = set()
        for id in list(self.messages):
            carried: list[Part] = []
            at = self._nodes[id].parent
            while at in self._nodes and at not in passed and self._nodes[at].role is None:
                passed.add(at)
                carried[:0] = waiting.pop(at, [])
                at = self._nodes[at].parent
            if carried:
                self._replace(id, (*carried, *self.messages[id].parts))
        for at, parts in waiting.items():
            last = self.above(at) or next(reversed(self.messages), None)
            if last is not None:
                self._replace(last, (*self.messages[last].parts, *parts))

    def _replace(self, id: str, parts: Sequence[Part]) -> None:
        self.messages[id] = self.messages[id]._replace(parts=tuple(parts))

    def lines(self) -> tuple[dict[str, tuple[RecordPoint | None, list[str]]], dict[str, str]]:
        return self._lines

    def _find_lines(self) -> tuple[dict[str, tuple[RecordPoint | None, list[str]]], dict[str, str]]:
        """The timelines by their keys, and the key of each message. A timeline continues with the first child.

        InvalidInput for a loop: none of its messages is below a first one."""
        children: dict[str | None, list[str]] = {}
        for id, above in self._parents.items():
            children.setdefault(above, []).append(id)
        lines: dict[str, tuple[RecordPoint | None, list[str]]] = {}
        line_of: dict[str, str] = {}
        starts: list[tuple[str, RecordPoint | None]] = [(id, None) for id in reversed(children.get(None, []))]
        while starts:
            at, parent = starts.pop()
            key, ids = str(len(lines)), list[str]()
            lines[key] = (parent, ids)
            seq = -1 if parent is None else parent.seq
            forks: list[tuple[str, RecordPoint | None]] = []
            while True:
                seq += 1
                ids.append(at)
                line_of[at] = key
                below = children.get(at, [])
                forks += [(each, RecordPoint(key, seq)) for each in below[1:]]
                if not below:
                    break
                at = below[0]
            starts += reversed(forks)
        if len(line_of) < len(self.messages):
            lost = next(id for id in self.messages if id not in line_of)
            raise InvalidInput(f"message {quote(lost)} must not be its own ancestor")
        return lines, line_of

    def _find_turns(self) -> dict[str, str]:
        """The question that each message belongs to."""
        found: dict[str, str] = {}
        for _, ids in self._lines[0].values():
            # Parents come before their children.
            for id in ids:
                asked = id if self.messages[id].role == "user" else found.get(self._parents[id] or "")
                if asked is not None:
                    found[id] = asked
        return found

    def turns(self, origin: str, surface: Surface) -> list[PastTurn]:
        """One for each question that a named model answered. To be called before `turn_id`."""
        answered: dict[str, list[Node]] = {}
        for id, node in self.messages.items():
            if node.role == "assistant" and node.model is not None and id in self._turn_of:
                answered.setdefault(self._turn_of[id], []).append(node)
        self._answered = set(answered)
        return [
            PastTurn(
                id=_turn_id(origin, asked),
                surface=surface,
                status="executed",
                created_at=self.messages[asked].created_at or nodes[0].created_at or _EPOCH,
                finished_at=nodes[-1].created_at,
                model=nodes[-1].model,
                usage=_sum([node.usage for node in nodes]),
            )
            for asked, nodes in answered.items()
        ]

    def turn_id(self, origin: str, id: str) -> str | None:
        asked = self._turn_of.get(id)
        return _turn_id(origin, asked) if asked in self._answered and asked is not None else None


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _turn_id(origin: str, asked: str) -> str:
    return hashlib.sha256(f"{origin}\n{asked}".encode("utf-8", "replace")).hexdigest()[:32]


def _sum(usages: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    names = {name: None for usage in usages for name in usage}
    return {name: sum(usage.get(name, 0) for usage in usages) for name in names}

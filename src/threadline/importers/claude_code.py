"""Claude Code: one JSON Lines file a session, each line with its `uuid` and that of the line before it.

The blocks of one answer are lines of their own with the same `message.id`: they become one message. A result is in a
line of the user and belongs to the call it names, wherever that is. Sidechains (subagents) are threads of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from threadline.core.blocks import from_blocks
from threadline.core.errors import InvalidInput
from threadline.core.history import History, ThreadRecord
from threadline.core.parts import Part
from threadline.importers.message_tree import Node, history_of
from threadline.importers.raw_values import counts, data_part, moment, text_in, title_in
from threadline.importers.report import SourceReport
from threadline.importers.source_files import Line

NAME = "claude-code"
_NOISE = frozenset(
    ("file-history-snapshot", "queue-operation", "progress", "last-prompt", "mode", "permission-mode", "agent-name")
)
_INJECTED = ("<local-command-", "<command-name>", "<command-message>", "<bash-", "<system-reminder>")
"""How texts begin that the program put into messages of the user."""
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
_USAGE = {
    "input_tokens": "input_tokens",
    "cache_creation_input_tokens": "input_tokens",
    "cache_read_input_tokens": "cached_tokens",
    "output_tokens": "output_tokens",
}


def looks_like(value: Mapping[str, Any]) -> bool:
    return "sessionId" in value or ("uuid" in value and "parentUuid" in value) or "leafUuid" in value


def read_session(lines: Iterable[Line], name: str, report: SourceReport, *, is_settled: bool) -> Iterator[History]:
    """The threads of one file. Not settled: the answer at its end may be incomplete and is left for later."""
    threads: dict[str, _Thread] = {}
    side_of: dict[str, str] = {}
    session = _Session(name)
    for number, line in lines:
        if session.takes(line, report):
            continue
        key = _side(line, side_of)
        uuid = text_in(line.get("uuid"))
        if uuid is not None and key:
            side_of[uuid] = key
        threads.setdefault(key, _Thread(report)).add(number, line)
    for key, thread in threads.items():
        found = thread.history(session, key, report, is_settled=is_settled)
        if found is not None:
            yield found


def _side(line: Mapping[str, Any], side_of: Mapping[str, str]) -> str:
    """The sidechain that a line belongs to; empty for the session itself."""
    if line.get("isSidechain") is not True:
        return ""
    agent = text_in(line.get("agentId"))
    parent = line.get("parentUuid")
    return agent or (side_of.get(parent) if isinstance(parent, str) else None) or str(line.get("uuid") or "side")


class _Session:
    """What lines say about the session as a whole."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.titles: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self._has_id = False

    def takes(self, line: Mapping[str, Any], report: SourceReport) -> bool:
        """Whether the line is only about the session."""
        for key in ("cwd", "gitBranch", "version"):
            if (value := text_in(line.get(key))) is not None:
                self.facts.setdefault(key, value[:1000])
        if not self._has_id and (found := text_in(line.get("sessionId"))) is not None:
            self.id, self._has_id = found[:200], True
        kind = str(line.get("type"))
        if kind in _TITLES:
            title = title_in(line.get(_TITLES[kind]) or line.get("title"))
            if title is not None:
                self.titles[kind] = title
            return True
        if kind == "continued-in":
            self.facts["continuedIn"] = str(line.get("continuedIn") or line.get("nextSessionId") or line.get("target"))[
                :200
            ]
            return False
        if kind in _NOISE:
            report.skipped[f"{NAME} {kind}"] += 1
        return kind in _NOISE

    @property
    def title(self) -> str | None:
        return next((self.titles[kind] for kind in _TITLES if kind in self.titles), None)


class _Group:
    """The lines of one message."""

    def __init__(self, id: str, parent: str | None, role: str, line: Mapping[str, Any]) -> None:
        self.id, self.parent, self.role = id, parent, role
        self.blocks: list[dict[str, Any]] = []
        self.created_at = moment(line.get("timestamp"))
        self.model: str | None = None
        self.usage: dict[str, int] = {}
        self.extra: list[Part] = []


class _Thread:
    def __init__(self, report: SourceReport) -> None:
        self._report = report
        self._groups: list[_Group] = []
        self._group_of: dict[str, _Group] = {}
        self._by_message: dict[str, _Group] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._leaf: str | None = None
        self._last: str | None = None

    def add(self, number: int, line: Mapping[str, Any]) -> None:
        kind, message = line.get("type"), line.get("message")
        uuid = text_in(line.get("uuid")) or f"line-{number}"
        if uuid in self._group_of:
            self._report.notes["duplicate ids"] += 1
            return
        parent = line.get("parentUuid") or line.get("logicalParentUuid")
        if "parentUuid" not in line:
            parent = self._last
        parent = parent if isinstance(parent, str) else None
        self._last = uuid
        if kind == "assistant" and isinstance(message, dict):
            self._add_answer(uuid, parent, line, message)
        elif kind == "user" and isinstance(message, dict):
            self._add_question(uuid, parent, line, message)
        else:
            name = f"{NAME}-{kind}" if isinstance(kind, str) and kind.isascii() and len(kind) < 60 else NAME
            self._report.unknown[name] += 1
            self._start(uuid, parent, "", line).extra.append(data_part(name, dict(line)))

    def _start(self, uuid: str, parent: str | None, role: str, line: Mapping[str, Any]) -> _Group:
        group = _Group(uuid, parent, role, line)
        self._groups.append(group)
        self._group_of[uuid] = group
        if role:
            self._leaf = uuid
        return group

    def _add_answer(self, uuid: str, parent: str | None, line: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        message_id = text_in(message.get("id"))
        group = self._by_message.get(message_id) if message_id is not None else None
        if group is None:
            group = self._start(uuid, parent, "assistant", line)
            if message_id is not None:
                self._by_message[message_id] = group
        else:
            self._group_of[uuid] = group
            self._leaf = uuid
        group.blocks += _blocks(message.get("content"))
        model = text_in(message.get("model"))
        group.model = model[:200] if model and model != "<synthetic>" else group.model
        group.usage = counts(message.get("usage"), _USAGE) or group.usage

    def _add_question(self, uuid: str, parent: str | None, line: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        said = []
        for block in _blocks(message.get("content")):
            if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
                self._results.setdefault(block["tool_use_id"], block)
            else:
                said.append(block)
        is_injected = line.get("isMeta") is True or line.get("isCompactSummary") is True or _is_injected(said)
        group = self._start(uuid, parent, "user" if said and not is_injected else "", line)
        if is_injected and said:
            name = f"{NAME}-{'compaction' if line.get('isCompactSummary') else 'context'}"
            group.extra.append(data_part(name, {"content": said}))
        elif said:
            group.blocks = said

    def history(self, session: _Session, key: str, report: SourceReport, *, is_settled: bool) -> History | None:
        nodes = [self._node(group) for group in self._groups]
        if not is_settled:
            while nodes and nodes[-1].role != "user":
                nodes.pop()
        model = next((group.model for group in reversed(self._groups) if group.model), None)
        metadata = {"source": NAME, "session": session.id, **session.facts}
        if key:
            metadata["agent"] = key[:200]
        record = ThreadRecord(
            title=session.title if not key else None,
            title_by_person="custom-title" in session.titles and not key,
            model=model,
            working_dir=session.facts.get("cwd"),
            metadata=metadata,
        )
        origin = f"{NAME}:{session.id}" + (f":{key}" if key else "")
        leaf = self._group_of[self._leaf].id if self._leaf is not None else None
        return history_of(origin, record, nodes, report, leaf=leaf, surface="cli")

    def _node(self, group: _Group) -> Node:
        parent = self._group_of[group.parent].id if group.parent in self._group_of else group.parent
        if group.role == "":
            return Node(group.id, parent, None, tuple(group.extra), group.created_at)
        results = [
            self._results[block["id"]]
            for block in group.blocks
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str) and block["id"] in self._results
        ]
        try:
            parts = from_blocks([*group.blocks, *results])
        except InvalidInput as exc:
            self._report.unknown[f"{NAME} content"] += 1
            parts = (data_part(f"{NAME}-content", {"content": group.blocks, "fault": str(exc)}),)
        role: Any = group.role
        grown = f".{len(group.blocks)}" if role == "assistant" and len(group.blocks) > 1 else ""
        return Node(group.id, parent, role, parts, group.created_at, group.model, group.usage, grown)


def _is_injected(blocks: list[dict[str, Any]]) -> bool:
    texts = [block.get("text") for block in blocks]
    return bool(texts) and all(isinstance(text, str) and text.lstrip().startswith(_INJECTED) for text in texts)


def _blocks(content: Any) -> list[dict[str, Any]]:
    match content:
        case str():
            return [{"type": "text", "text": content}] if content.strip() else []
        case list():
            return [
                block if isinstance(block, dict) else {"type": "text", "text": str(block)} for block in content if block
            ]
    return []

"""Codex: rollout files, `{"timestamp", "type", "payload"}` a line, packed with zstd when they are old.

What is said is in `response_item` lines, and again in `event_msg` lines for the screen: those are left out, except
the counts of tokens. Older files have the items without an envelope. All that the assistant says and does between two
messages of the user becomes one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from threadline.core.errors import InvalidInput
from threadline.core.history import History, ThreadRecord
from threadline.core.parts import Part
from threadline.core.response_items import ItemCalls, message_from_items
from threadline.importers.message_tree import Node, history_of
from threadline.importers.raw_values import counts, data_part, moment, text_in
from threadline.importers.report import SourceReport
from threadline.importers.source_files import Line

NAME = "codex"
_KINDS = frozenset(("session_meta", "response_item", "event_msg", "turn_context", "compacted"))
_CONTEXT = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<permissions",
)
_USAGE = {
    "input_tokens": "input_tokens",
    "cached_input_tokens": "cached_tokens",
    "output_tokens": "output_tokens",
    "reasoning_output_tokens": "reasoning_tokens",
}
_ITEMS_OF_A_MESSAGE = 300


def looks_like(value: Mapping[str, Any]) -> bool:
    is_line = str(value.get("type")) in _KINDS and "payload" in value
    return is_line or ("timestamp" in value and "instructions" in value)


def read_session(lines: Iterable[Line], name: str, report: SourceReport, *, is_settled: bool) -> Iterator[History]:
    session = _Session(name, report)
    for line in lines:
        session.add(*line)
    found = session.history(is_settled=is_settled)
    if found is not None:
        yield found


class _Session:
    def __init__(self, name: str, report: SourceReport) -> None:
        self._report = report
        self._id = name
        self._facts: dict[str, str] = {}
        self._instructions: str | None = None
        self._model: str | None = None
        self._nodes: list[Node] = []
        self._items: list[Mapping[str, Any]] = []
        self._places: list[tuple[int, Any]] = []
        self._calls = ItemCalls()
        self._usage: dict[str, int] = {}
        self._at: Any = None

    def add(self, number: int, line: dict[str, Any]) -> None:
        self._at = line.get("timestamp", self._at)
        payload = line.get("payload")
        match line.get("type"):
            case "session_meta" if isinstance(payload, dict):
                self._note_session(payload)
            case "turn_context" if isinstance(payload, dict):
                self._model = (text_in(payload.get("model")) or self._model or "")[:200] or None
            case "response_item" if isinstance(payload, dict):
                self._add_item(number, payload)
            case "event_msg" if isinstance(payload, dict):
                self._note_event(payload)
            case "compacted":
                self._report.notes["compactions"] += 1
                self._add_part(number, "codex-compacted", payload)
            case "message" | "reasoning" | "function_call" | "function_call_output" | "local_shell_call":
                self._add_item(number, line)
            case None if "instructions" in line and not self._nodes:
                self._note_session(line)
            case None if "record_type" in line:
                self._report.skipped[f"{NAME} state"] += 1
            case kind:
                self._report.unknown[f"{NAME} {str(kind)[:60]}"] += 1
                self._add_part(number, "codex-line", line)

    def _note_session(self, meta: Mapping[str, Any]) -> None:
        if "id" in self._facts:
            return
        if (found := text_in(meta.get("id")) or text_in(meta.get("session_id"))) is not None:
            self._id = self._facts["id"] = found[:200]
        for theirs in ("cwd", "originator", "cli_version", "model_provider"):
            if (value := text_in(meta.get(theirs))) is not None:
                self._facts[theirs] = value[:1000]
        base = meta.get("base_instructions")
        self._instructions = text_in(meta.get("instructions")) or text_in(
            base.get("text") if isinstance(base, dict) else None
        )

    def _note_event(self, event: Mapping[str, Any]) -> None:
        info = event.get("info")
        if event.get("type") == "token_count" and isinstance(info, dict):
            for name, count in counts(info.get("last_token_usage"), _USAGE).items():
                self._usage[name] = self._usage.get(name, 0) + count

    def _add_item(self, number: int, item: Mapping[str, Any]) -> None:
        kind = item.get("type")
        if kind == "ghost_snapshot":
            self._report.skipped[f"{NAME} ghost_snapshot"] += 1
            return
        if kind != "message" or item.get("role") == "assistant":
            self._items.append(item)
            self._places.append((number, self._at))
            self._calls.add(item)
            return
        text = _first_text(item.get("content"))
        if item.get("role") != "user" or text.startswith(_CONTEXT):
            self._add_part(number, "codex-context", item)
            return
        self._finish_answer()
        self._append(number, "user", self._parts([item]), self._at)

    def _add_part(self, number: int, name: str, value: Any) -> None:
        self._finish_answer()
        self._append(number, None, (data_part(name, value),), self._at)

    def _finish_answer(self) -> None:
        items, places, self._items, self._places = self._items, self._places, [], []
        for start in range(0, len(items), _ITEMS_OF_A_MESSAGE):
            some = items[start : start + _ITEMS_OF_A_MESSAGE]
            version = f"-{places[start + len(some) - 1][0]}" if len(some) > 1 else ""
            number, at = places[start]
            self._append(number, "assistant", self._parts(some), at, version)

    def _append(self, number: int, role: Any, parts: tuple[Part, ...], at: Any, version: str = "") -> None:
        parent = self._nodes[-1].id if self._nodes else None
        usage: dict[str, int] = {}
        if role == "assistant":
            usage, self._usage = self._usage, {}
        model = self._model if role == "assistant" else None
        self._nodes.append(Node(f"L{number}", parent, role, parts, moment(at), model, usage, version))

    def _parts(self, items: list[Mapping[str, Any]]) -> tuple[Part, ...]:
        try:
            return message_from_items(items, self._calls).parts
        except (InvalidInput, TypeError, AttributeError):
            # Items are whatever a file holds; the codec is written for those of the API.
            self._report.unknown[f"{NAME} items"] += 1
            return (data_part("codex-items", {"items": items}),)

    def history(self, *, is_settled: bool) -> History | None:
        if is_settled:
            self._finish_answer()
        metadata = {"source": NAME, "session": self._id, **{k: v for k, v in self._facts.items() if k != "id"}}
        record = ThreadRecord(
            model=self._model,
            working_dir=self._facts.get("cwd"),
            system_prompt=self._instructions and self._instructions[:50_000],
            metadata=metadata,
        )
        return history_of(f"{NAME}:{self._id}", record, self._nodes, self._report, surface="cli")


def _first_text(content: Any) -> str:
    if isinstance(content, str):
        return content.lstrip()
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return str(part["text"]).lstrip()
    return ""

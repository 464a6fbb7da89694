"""The `llm` command's `logs.db`: a SQLite file with conversations, responses, tool calls and their results.

The file is opened for reading only, and everything is read from tables: a view could be made to run for ever.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from threadline.core.errors import InvalidInput
from threadline.core.history import History, ThreadRecord
from threadline.core.parts import Part, ReasoningPart, TextPart
from threadline.importers.message_tree import Node, history_of
from threadline.importers.raw_values import call_part, data_part, moment, parsed, text_in, title_in
from threadline.importers.report import SourceReport
from threadline.importers.source_files import open_source

NAME = "llm"
HEADER = b"SQLite format 3\x00"
_STEPS = 2_000_000_000
_LONGEST = 64 << 20


_EVERY_RESPONSE = "SELECT * FROM responses ORDER BY rowid"
_RESPONSES_OF_NONE = "SELECT * FROM responses WHERE conversation_id IS NULL ORDER BY rowid"
_RESPONSES = "SELECT * FROM responses WHERE conversation_id = ? ORDER BY rowid"
_CONVERSATION = "SELECT * FROM conversations WHERE id = ?"
_OF_RESPONSE = {
    "tool_calls": "SELECT * FROM tool_calls WHERE response_id = ? ORDER BY rowid",
    "tool_results": "SELECT * FROM tool_results WHERE response_id = ? ORDER BY rowid",
}


class LlmLogs:
    def __init__(self, connection: sqlite3.Connection, report: SourceReport) -> None:
        self._connection = connection
        self._report = report
        self._columns = {
            name: {column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))}
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if not {"id", "prompt", "response"} <= self._columns.get("responses", set()):
            raise InvalidInput("must be a logs.db of llm: it has no table `responses` with prompts and responses")

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        cursor = self._connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def conversation_ids(self) -> list[Any]:
        """Also of responses that belong to none: each is a conversation of its own."""
        if "conversation_id" not in self._columns["responses"]:
            return [None]
        found = self._connection.execute(
            "SELECT conversation_id FROM responses WHERE conversation_id IS NOT NULL GROUP BY 1 ORDER BY min(rowid)"
        )
        return [row[0] for row in found] + [None]

    def histories(self, conversation_id: Any) -> Iterator[History]:
        if conversation_id is None:
            has_column = "conversation_id" in self._columns["responses"]
            for response in self._rows(_RESPONSES_OF_NONE if has_column else _EVERY_RESPONSE):
                found = self._history(f"response:{response['id']}", {}, [response])
                if found is not None:
                    yield found
            return
        known = self._rows(_CONVERSATION, conversation_id) if "conversations" in self._columns else []
        about = known[0] if known else {}
        found = self._history(str(conversation_id), about, self._rows(_RESPONSES, conversation_id))
        if found is not None:
            yield found

    def _history(self, key: str, about: dict[str, Any], responses: list[dict[str, Any]]) -> History | None:
        results: dict[str, tuple[Any, bool]] = {}
        for response in responses:
            for result in self._of("tool_results", response["id"]):
                exception = text_in(result.get("exception"))
                outcome = (exception, True) if exception else (parsed(result.get("output")), False)
                results.setdefault(str(result.get("tool_call_id")), outcome)
        nodes: list[Node] = []
        for response in responses:
            self._add(nodes, response, results)
        system = next((text for each in responses if (text := text_in(each.get("system"))) is not None), None)
        record = ThreadRecord(
            title=title_in(about.get("name")),
            model=(text_in(about.get("model")) or "")[:200] or None,
            system_prompt=system and system[:50_000],
            metadata={"source": NAME, "conversation": key[:200]},
        )
        return history_of(f"{NAME}:{key}", record, nodes, self._report, surface="cli")

    def _of(self, table: str, response_id: Any) -> list[dict[str, Any]]:
        return self._rows(_OF_RESPONSE[table], response_id) if table in self._columns else []

    def _add(self, nodes: list[Node], response: dict[str, Any], results: dict[str, tuple[Any, bool]]) -> None:
        response_id, at = response["id"], moment(response.get("datetime_utc"))
        asked = [*self._fragments(response_id), *self._attachments(response_id)]
        if (prompt := text_in(response.get("prompt"))) is not None:
            asked.append(TextPart(prompt))
        if asked:
            nodes.append(Node(f"{response_id}-prompt", nodes[-1].id if nodes else None, "user", tuple(asked), at))
        answered: list[Part] = []
        if (thought := text_in(response.get("reasoning"))) is not None:
            answered.append(ReasoningPart(thought))
        if (text := text_in(response.get("response"))) is not None:
            answered.append(TextPart(text))
        for call in self._of("tool_calls", response_id):
            call_id = str(call.get("tool_call_id") or call.get("id"))
            answered.append(call_part(call.get("name"), call_id, parsed(call.get("arguments")), results.get(call_id)))
        if answered:
            usage = {
                name: count for name in ("input_tokens", "output_tokens") if type(count := response.get(name)) is int
            }
            model = text_in(response.get("resolved_model")) or text_in(response.get("model"))
            parent = nodes[-1].id if nodes else None
            nodes.append(Node(str(response_id), parent, "assistant", tuple(answered), at, model and model[:200], usage))

    def _fragments(self, response_id: Any) -> list[Part]:
        if not {"fragments", "prompt_fragments"} <= self._columns.keys():
            return []
        found = self._connection.execute(
            "SELECT f.content FROM prompt_fragments p JOIN fragments f ON f.id = p.fragment_id"
            " WHERE p.response_id = ? ORDER BY p.rowid",
            (response_id,),
        )
        return [TextPart(text) for (text,) in found if isinstance(text, str) and text.strip()]

    def _attachments(self, response_id: Any) -> list[Part]:
        if not {"attachments", "prompt_attachments"} <= self._columns.keys():
            return []
        found = self._connection.execute(
            "SELECT a.id, a.type, a.path, a.url, length(a.content) FROM prompt_attachments p"
            " JOIN attachments a ON a.id = p.attachment_id WHERE p.response_id = ? ORDER BY p.rowid",
            (response_id,),
        )
        names = ("id", "type", "path", "url", "bytes")
        parts: list[Part] = []
        for row in found:
            self._report.notes["attachments named, not stored"] += 1
            parts.append(data_part("llm-attachment", dict(zip(names, row, strict=True))))
        return parts


@contextlib.contextmanager
def open_logs(path: Path, report: SourceReport) -> Iterator[LlmLogs]:
    with open_source(path) as file:
        if file.read(len(HEADER)) != HEADER:
            raise InvalidInput("must be a SQLite database")
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace").replace("\0", "\ufffd")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            steps = iter(range(_STEPS // 1_000_000))
            # A file can be made so that a statement never ends.
            connection.set_progress_handler(lambda: next(steps, None) is None, 1_000_000)
            yield LlmLogs(connection, report)
    except sqlite3.Error as exc:
        raise InvalidInput(f"cannot be read as a SQLite database: {exc}") from exc

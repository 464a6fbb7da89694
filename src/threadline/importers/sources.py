"""The sources that can be imported, how each is recognised, and the histories in a file or folder.

Another source is one module with a codec and an entry here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from threadline.core.errors import InvalidInput, ThreadlineError
from threadline.core.history import History
from threadline.importers import chatgpt, claude_code, codex, llm_logs, message_list_files
from threadline.importers.report import SourceReport
from threadline.importers.source_files import (
    Line,
    files_below,
    names_in_zip,
    open_in_zip,
    open_maybe_zstd,
    open_source,
    read_items,
    read_lines,
)

ReadFile: TypeAlias = Callable[[Path, SourceReport, bool], Iterator[History]]


class Source(NamedTuple):
    """`wants` says which files of a folder belong to it. `folder` is where its program keeps them."""

    read: ReadFile
    wants: Callable[[Path], bool]
    folder: str | None = None


def _read_session_file(
    read: Callable[..., Iterator[History]], path: Path, report: SourceReport, is_settled: bool
) -> Iterator[History]:
    name = path.name.removesuffix(".zst").removesuffix(".jsonl")
    with open_maybe_zstd(path) as file:
        lines: Iterable[Line] = read_lines(file)
        yield from read(lines, name, report, is_settled=is_settled)


def _read_chatgpt(path: Path, report: SourceReport, _is_settled: bool) -> Iterator[History]:
    if path.suffix.lower() != ".zip":
        with open_source(path) as file:
            yield from _conversations(read_items(file), path.name, report)
        return
    names = [name for name in names_in_zip(path) if _is_conversations(Path(name))]
    if not names:
        raise InvalidInput("has no conversations.json in it")
    for name in sorted(names):
        with open_in_zip(path, name) as file:
            yield from _conversations(read_items(file), f"{path.name}/{name}", report)


def _conversations(items: Iterable[tuple[int, Any]], name: str, report: SourceReport) -> Iterator[History]:
    for number, value in items:
        try:
            found = chatgpt.read_conversation(value, report)
        except ThreadlineError as exc:
            report.refuse(f"{name}: conversation {number}", exc)
            continue
        if found is not None:
            yield found


def _is_conversations(path: Path) -> bool:
    return path.name.startswith("conversations") and path.suffix == ".json"


def _read_llm(path: Path, report: SourceReport, _is_settled: bool) -> Iterator[History]:
    with llm_logs.open_logs(path, report) as logs:
        for conversation_id in logs.conversation_ids():
            yield from logs.histories(conversation_id)


def _read_lists(
    name: str, nodes_of: message_list_files.Nodes, path: Path, report: SourceReport, _is_settled: bool
) -> Iterator[History]:
    with open_maybe_zstd(path) as file:
        values: Iterable[tuple[int, Any]] = (
            read_lines(file) if path.name.endswith((".jsonl", ".jsonl.zst")) else _lists_in(read_items(file))
        )
        for number, value in values:
            try:
                found = message_list_files.read_list(value, name, f"{path.name}:{number}", nodes_of, report)
            except ThreadlineError as exc:
                report.refuse(f"{path.name}: list {number}", exc)
                continue
            if found is not None:
                yield found


def _lists_in(items: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """An array of messages is one list; an array of lists, or of objects with messages, is several."""
    messages: list[Any] = []
    for number, value in items:
        if message_list_files.messages_of(value) is not None and not _is_message(value):
            yield number, value
        else:
            messages.append(value)
    if messages:
        yield 0, messages


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and ("role" in value or "type" in value)


def _is_jsonl(path: Path) -> bool:
    return path.suffix == ".jsonl"


SOURCES: Mapping[str, Source] = {
    chatgpt.NAME: Source(_read_chatgpt, lambda path: _is_conversations(path) or path.suffix.lower() == ".zip"),
    claude_code.NAME: Source(partial(_read_session_file, claude_code.read_session), _is_jsonl, "~/.claude/projects"),
    codex.NAME: Source(
        partial(_read_session_file, codex.read_session),
        lambda path: path.name.startswith("rollout-") and path.name.endswith((".jsonl", ".jsonl.zst")),
        "~/.codex/sessions",
    ),
    llm_logs.NAME: Source(_read_llm, lambda path: path.name == "logs.db"),
    message_list_files.UI_MESSAGES: Source(
        partial(_read_lists, message_list_files.UI_MESSAGES, message_list_files.ui_nodes),
        lambda path: path.suffix in (".json", ".jsonl"),
    ),
    message_list_files.OPENAI: Source(
        partial(_read_lists, message_list_files.OPENAI, message_list_files.openai_nodes),
        lambda path: path.suffix in (".json", ".jsonl"),
    ),
}


def source_files(source: str, path: Path) -> Iterator[Path]:
    """The files of a source: the path itself, or those below a folder."""
    if path.is_dir():
        yield from (found for found in files_below(path) if SOURCES[source].wants(found))
    elif path.exists():
        yield path
    else:
        raise InvalidInput(f"{path} must be a file or a folder, got nothing there")


def read_histories(source: str, path: Path, report: SourceReport, *, is_settled: bool = True) -> Iterator[History]:
    """The threads of one file, one after the other. A fault ends the file and is put into the report."""
    try:
        yield from SOURCES[source].read(path, report, is_settled)
    except ThreadlineError as exc:
        report.refuse(str(path), exc)
    except OSError as exc:
        report.refuse(str(path), f"cannot be read: {exc.strerror}")


def detect(path: Path) -> str | None:
    """The source that a file or folder comes from; None for an export of Threadline and for what is unknown."""
    if path.is_dir():
        return next((found for file in files_below(path) if (found := _detect_in_folder(file)) is not None), None)
    with contextlib.suppress(ThreadlineError, OSError, UnicodeDecodeError):
        return _detect_file(path)
    return None


def _detect_in_folder(path: Path) -> str | None:
    likely = any(SOURCES[name].wants(path) for name in (chatgpt.NAME, claude_code.NAME, codex.NAME, llm_logs.NAME))
    return detect(path) if likely or path.suffix == ".json" else None


def _detect_file(path: Path) -> str | None:
    with open_source(path) as file:
        head = file.read(16)
    if head.startswith(llm_logs.HEADER):
        return llm_logs.NAME
    if head.startswith(b"PK"):
        return chatgpt.NAME if any(_is_conversations(Path(name)) for name in names_in_zip(path)) else None
    if path.name.endswith((".jsonl", ".jsonl.zst")):
        with open_maybe_zstd(path) as unpacked:
            return _detect_lines(read_lines(unpacked))
    with open_source(path) as file:
        values = [value for (_, value), _ in zip(read_items(file), range(20), strict=False)]
    return _detect_values(values)


def _detect_lines(lines: Iterator[Line]) -> str | None:
    head = [value for (_, value), _ in zip(lines, range(20), strict=False)]
    for looks_like, name in ((claude_code.looks_like, claude_code.NAME), (codex.looks_like, codex.NAME)):
        if any(looks_like(value) for value in head):
            return name
    return _detect_values(head[:1])


def _detect_values(values: list[Any]) -> str | None:
    if values and isinstance(values[0], dict) and chatgpt.looks_like(values[0]):
        return chatgpt.NAME
    found: Any = values
    if values and not _is_message(values[0]) and message_list_files.messages_of(values[0]) is not None:
        found = values[0]
    if message_list_files.is_message_list(found, "parts"):
        return message_list_files.UI_MESSAGES
    return message_list_files.OPENAI if message_list_files.is_item_list(found) else None

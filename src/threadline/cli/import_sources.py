"""`threadline threads import` of other programs' conversations: a file, a folder, or a folder that is watched."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from threadline.cli.connection import open_threadline, user_scope
from threadline.cli.output import Progress, pluralize, print_json
from threadline.cli.printable import printable
from threadline.core.errors import InvalidInput, StoreFailed, ThreadlineError
from threadline.core.history import IMPORTED_PROMPT, History, MessageRecord, TimelineRecord
from threadline.importers.report import SourceReport
from threadline.importers.sources import SOURCES, read_histories, source_files
from threadline.threads.history_import import HistoryImporter

_SETTLED_SECONDS = 120.0
"""After this time without a change the answer at the end of a session counts as complete."""
_FOUND = ("created", "extended", "unchanged", "deleted")


class _Totals:
    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.messages = 0
        self.branches = 0
        self.unused_prompts = 0


class _Seen(NamedTuple):
    """A file as it was when it was read."""

    modified_ns: int
    size: int
    is_settled: bool


async def import_sources(args: argparse.Namespace, source: str) -> None:
    path = _path_of(args, source)
    report, totals = SourceReport(), _Totals()
    if args.dry_run:
        if args.watch:
            raise InvalidInput("--dry-run and --watch exclude each other: leave one out")
        for file in source_files(source, path):
            for history in read_histories(source, file, report):
                _count(history, totals)
        _print_report(args, source, totals, report)
        return
    async with open_threadline(args) as tl:
        importer = HistoryImporter(tl.store, tl.sealer, tl.clock, user_scope(tl), keep_system=args.keep_system)
        if args.watch:
            await _watch(args, source, path, importer)
            return
        progress = Progress("Imported threads")
        for file in source_files(source, path):
            await _import_file(source, file, importer, totals, report, progress)
        progress.close()
    _print_report(args, source, totals, report)


def _path_of(args: argparse.Namespace, source: str) -> Path:
    folder = SOURCES[source].folder
    if args.file is None:
        if folder is None:
            raise InvalidInput(f"a file is missing: threadline threads import --from {source} FILE")
        return Path(folder).expanduser()
    if args.watch and folder is None:
        raise InvalidInput(f"--watch must be used with claude-code or codex, got {source}")
    return Path(args.file)


def _count(history: History, totals: _Totals) -> None:
    totals.outcomes["found"] += 1
    totals.messages += sum(isinstance(item, MessageRecord) for item in history.items)
    totals.branches += max(0, sum(isinstance(item, TimelineRecord) for item in history.items) - 1)
    totals.unused_prompts += history.thread.system_prompt is not None


async def _import_file(
    source: str,
    path: Path,
    importer: HistoryImporter,
    totals: _Totals,
    report: SourceReport,
    progress: Progress,
    *,
    is_settled: bool = True,
) -> None:
    for history in read_histories(source, path, report, is_settled=is_settled):
        try:
            stored = await importer.store(history)
        except StoreFailed:
            raise
        except ThreadlineError as exc:
            # One thread that cannot be stored must not keep out the others.
            report.refuse(f"{path}: {history.origin}", exc)
            continue
        totals.outcomes[stored.outcome] += 1
        totals.messages += stored.messages
        totals.unused_prompts += stored.outcome == "created" and IMPORTED_PROMPT in stored.thread.metadata
        progress(sum(totals.outcomes.values()))


async def _watch(args: argparse.Namespace, source: str, path: Path, importer: HistoryImporter) -> None:
    """Reads the files that have changed, until it is interrupted. A session that is being written is read without the
    answer at its end, and again when that is complete."""
    if not await asyncio.to_thread(path.is_dir):
        raise InvalidInput(f"--watch must be given a folder, got {path}")
    print(f"Watching {printable(str(path))}. Stop with Ctrl+C.", flush=True)
    seen: dict[Path, _Seen] = {}
    progress = Progress("Imported threads")
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        while True:
            for file, state in _changed(source, path, seen):
                report, totals = SourceReport(), _Totals()
                await _import_file(source, file, importer, totals, report, progress, is_settled=state.is_settled)
                seen[file] = state
                if totals.messages or report.faults:
                    progress.close()
                    _print_report(args, source, totals, report, exits=False)
            # Polled: notifications of file systems do not reach every kind of file system.
            await asyncio.sleep(args.every)


def _changed(source: str, path: Path, seen: dict[Path, _Seen]) -> Iterator[tuple[Path, _Seen]]:
    for file in source_files(source, path):
        try:
            found = file.stat()
        except OSError:
            continue
        is_settled = time.time() - found.st_mtime > _SETTLED_SECONDS
        state = _Seen(found.st_mtime_ns, found.st_size, is_settled)
        if seen.get(file) != state:
            yield file, state


def _print_report(
    args: argparse.Namespace, source: str, totals: _Totals, report: SourceReport, *, exits: bool = True
) -> None:
    if args.json:
        counts: dict[str, Any] = {"from": source, "threads": dict(totals.outcomes), "messages": totals.messages}
        # Counted while nothing is stored: a stored branch is not always a new one.
        branches = {"branches": totals.branches} if args.dry_run else {}
        print_json({**counts, **branches, "report": report.to_json()})
    else:
        for line in _sentences(args, source, totals, report):
            print(printable(line), flush=True)
    if report.fault_count and exits:
        raise InvalidInput(f"{pluralize(report.fault_count, 'fault')} in the source: everything else was read")


def _sentences(args: argparse.Namespace, source: str, totals: _Totals, report: SourceReport) -> Iterator[str]:
    if args.dry_run:
        found = f"{pluralize(totals.outcomes['found'], 'thread')}, {pluralize(totals.messages, 'message')}"
        branches = f"{totals.branches:,} {'branch' if totals.branches == 1 else 'branches'}"
        yield f"Found in {source}: {found}, {branches}. Nothing was stored."
    else:
        threads = ", ".join(f"{totals.outcomes[name]:,} {name}" for name in _FOUND if totals.outcomes[name])
        yield f"Imported from {source}: {pluralize(totals.messages, 'new message')}; threads: {threads or 'none'}"
    for title, counted in (("Kept as data", report.unknown), ("Left out", report.skipped), ("Note", report.notes)):
        for what, count in sorted(counted.items()):
            yield f"{title}: {what}: {count:,}"
    if totals.unused_prompts:
        prompts = pluralize(totals.unused_prompts, "thread")
        yield f"Note: the system prompt of {prompts} is not used, only stored in its metadata (see --keep-system)"
    for fault in report.faults:
        yield f"Refused: {fault}"

"""`threadline threads export|import`: writes threads to a file and reads them back, and imports nothing twice."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from threadline.cli.command_line import IMPORT_SOURCES
from threadline.cli.connection import open_threadline, user_scope
from threadline.cli.import_sources import import_sources
from threadline.cli.output import Progress, output_file, pluralize, report
from threadline.cli.thread_ids import find_thread
from threadline.core.errors import InvalidImport, InvalidInput
from threadline.core.history import IMPORTED_PROMPT, ImportedThread, ImportOutcome
from threadline.core.ids import is_id
from threadline.core.threads import Thread
from threadline.importers.sources import detect
from threadline.threads.transfer import Importer, export, lines_of
from threadline.threads.user_threads import Threads


async def export_threads(args: argparse.Namespace) -> None:
    if bool(args.thread) == args.all:
        raise InvalidInput("nothing to export: name threads or add --all")
    if args.deleted and not args.all:
        raise InvalidInput("--deleted adds deleted threads to --all: name a deleted thread by its whole id instead")
    if args.format != "jsonl" and (args.all or len(args.thread) > 1):
        raise InvalidInput(f"--format {args.format} takes one thread: use --format jsonl for several")
    async with open_threadline(args, must_write=False) as tl:
        threads = tl.threads(user_scope(tl))
        ids = (
            [thread.id async for thread in _list_all(threads, deleted=args.deleted)]
            if args.all
            else [await _find_id(threads, name) for name in args.thread]
        )
        progress = Progress("Exported threads")
        with output_file(args.output) as out:
            for done, thread_id in enumerate(ids, start=1):
                async for piece in export(threads, thread_id, args.format):
                    out.write(piece)
                progress(done, len(ids))
        progress.close()


async def _find_id(threads: Threads, name: str) -> str:
    """A deleted thread is found by its whole id."""
    if is_id(name) and await threads.get(name, deleted=True) is not None:
        return name
    return (await find_thread(threads, name)).id


async def _list_all(threads: Threads, *, deleted: bool) -> AsyncIterator[Thread]:
    for kind in (False, True) if deleted else (False,):
        cursor: str | None = None
        while True:
            page = await threads.page(limit=100, cursor=cursor, archived=None, deleted=kind)
            for thread in page.items:
                yield thread
            cursor = page.next_cursor
            if cursor is None:
                break


async def import_threads(args: argparse.Namespace) -> None:
    source = args.source or (detect(Path(args.file)) if args.file not in (None, "-") else None)
    if source is not None:
        await import_sources(args, source)
        return
    if args.file is None:
        raise InvalidInput("nothing to import: name a file, or a program with --from")
    if args.watch or args.dry_run:
        option = "--watch" if args.watch else "--dry-run"
        raise InvalidInput(f"{option} must be used with another program's conversations: name it with --from")
    async with open_threadline(args) as tl:
        importer = Importer(tl.store, tl.sealer, tl.clock, user_scope(tl))
        progress = Progress("Imported threads")
        with _open_seekable(args.file) as source:
            lines = lines_of(source, importer.longest_line)
            try:
                imported = await importer.run(lines, keep_system=args.keep_system, progress=progress)
            except InvalidImport as exc:
                raise InvalidInput(_unreadable(args.file, exc)) from exc
        progress.close()
    pinned = {"pinnedTexts": importer.pinned_added} if importer.pinned_added else {}
    counts = {outcome: sum(each.outcome == outcome for each in imported) for outcome in _OUTCOMES}
    report(args, {"threads": [each.thread for each in imported], **counts, **pinned}, "\n".join(_shown(imported)))
    if left := sum(each.outcome == "created" and IMPORTED_PROMPT in each.thread.metadata for each in imported):
        what = f"the system prompt of {pluralize(left, 'thread')} is not used, only stored in its metadata"
        print(f"Note: {what}. If you trust the file, import it with --keep-system.", file=sys.stderr)
    if importer.pinned_ignored:
        what = f"{pluralize(importer.pinned_ignored, 'pinned text')} not imported, because they instruct agents"
        print(f"Note: {what}. If you trust the file, import it with --keep-system.", file=sys.stderr)


def _unreadable(file: str, error: InvalidImport) -> str:
    name = "standard input" if file == "-" else file
    if error.line > 1:
        return f"{name}, {error}"
    return (
        f"{name} was not recognised ({error}): import what `threadline threads export` wrote, "
        f"or name the program it comes from with --from {'|'.join(IMPORT_SOURCES)}"
    )


_SHOWN = 5
_OUTCOMES: dict[ImportOutcome, str] = {
    "created": "Imported {}",
    "extended": "Added what was new to {}",
    "unchanged": "{} already here, and nothing was new",
    "deleted": "{} deleted here, and not imported again: restore or purge first",
}


def _shown(imported: list[ImportedThread]) -> Iterator[str]:
    if not imported:
        yield "The file has no thread"
    for outcome, text in _OUTCOMES.items():
        ids = [each.thread.id for each in imported if each.outcome == outcome]
        if ids:
            shown = ", ".join(ids[:_SHOWN]) + (" …" if len(ids) > _SHOWN else "")
            yield f"{text.format(pluralize(len(ids), 'thread'))}: {shown}"


@contextlib.contextmanager
def _open_seekable(path: str) -> Iterator[IO[bytes]]:
    """Opens the file, or copies standard input to a temporary one: an import reads its input twice."""
    if Path(path).is_dir():
        raise InvalidInput(
            f"no conversations were found in the folder {path}: name a file in it, "
            f"or the program it belongs to with --from {'|'.join(IMPORT_SOURCES)}"
        )
    try:
        if path != "-":
            with Path(path).open("rb") as file:
                yield file
            return
    except OSError as exc:
        raise InvalidInput(f"cannot read {path}: {exc.strerror}") from exc
    with tempfile.TemporaryFile() as copy:
        while block := sys.stdin.buffer.read(1 << 20):
            copy.write(block)
        yield copy

"""`threadline threads export|import`: writes threads to a file and reads them back. An import is all or nothing."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from threadline.cli.connection import open_threadline, user_scope
from threadline.cli.output import Progress, output_file, pluralize, report
from threadline.cli.thread_ids import find_thread
from threadline.core.errors import InvalidInput
from threadline.core.history import IMPORTED_PROMPT
from threadline.core.threads import Thread
from threadline.threads.transfer import Importer, export
from threadline.threads.user_threads import Threads


async def export_threads(args: argparse.Namespace) -> None:
    if bool(args.thread) == args.all:
        raise InvalidInput("nothing to export: name threads or add --all")
    if args.format != "jsonl" and (args.all or len(args.thread) > 1):
        raise InvalidInput(f"--format {args.format} takes one thread: use --format jsonl for several")
    async with open_threadline(args, must_write=False) as tl:
        threads = tl.threads(user_scope(tl))
        ids = (
            [thread.id async for thread in _list_all(threads)]
            if args.all
            else [(await find_thread(threads, name)).id for name in args.thread]
        )
        progress = Progress("Exported threads")
        with output_file(args.output) as out:
            for done, thread_id in enumerate(ids, start=1):
                async for piece in export(threads, thread_id, args.format):
                    out.write(piece)
                progress(done, len(ids))
        progress.close()


async def _list_all(threads: Threads) -> AsyncIterator[Thread]:
    cursor: str | None = None
    while True:
        page = await threads.page(limit=100, cursor=cursor, archived=None)
        for thread in page.items:
            yield thread
        cursor = page.next_cursor
        if cursor is None:
            return


async def import_threads(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        importer = Importer(tl.store, tl.sealer, user_scope(tl))
        progress = Progress("Imported lines")
        with _open_seekable(args.file) as source:

            def lines() -> Iterator[bytes]:
                source.seek(0)
                return iter(lambda: source.readline(importer.longest_line + 1), b"")

            imported = await importer.run(lines, keep_system=args.keep_system, progress=progress)
        progress.close()
    ids = ", ".join(thread.id for thread in imported)
    report(args, {"threads": imported}, f"Imported {pluralize(len(imported), 'thread')}: {ids}")
    if left := sum(IMPORTED_PROMPT in thread.metadata for thread in imported):
        what = f"the system prompt of {pluralize(left, 'thread')} is not used, only stored in its metadata"
        print(f"Note: {what}. If you trust the file, import it with --keep-system.", file=sys.stderr)


@contextlib.contextmanager
def _open_seekable(path: str) -> Iterator[IO[bytes]]:
    """Opens the file, or copies standard input to a temporary one: an import reads its input twice."""
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

"""`threadline threads export|import`: out to a file, and in again, all or nothing."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from threadline.cli.connection import opened, scope_of
from threadline.cli.output import Progress, counted, say
from threadline.core.errors import InvalidInput
from threadline.core.threads import Thread
from threadline.threads.transfer import Importer, export
from threadline.threads.user_threads import Threads


async def export_threads(args: argparse.Namespace) -> None:
    if bool(args.thread) == args.all:
        raise InvalidInput("name the threads to export, or say --all")
    if args.format != "jsonl" and (args.all or len(args.thread) > 1):
        raise InvalidInput("several threads fit into one file only as JSON Lines")
    async with opened(args) as tl:
        threads = tl.threads(scope_of(tl))
        ids = (
            [thread.id async for thread in _every(threads)]
            if args.all
            else [(await threads.find(name)).id for name in args.thread]
        )
        progress = Progress("Exported threads")
        with output_file(args.output) as out:
            for done, thread_id in enumerate(ids, start=1):
                async for piece in export(threads, thread_id, args.format):
                    out.write(piece)
                progress(done, len(ids))
        progress.close()


async def _every(threads: Threads) -> AsyncIterator[Thread]:
    cursor: str | None = None
    while True:
        page = await threads.page(limit=100, cursor=cursor, archived=None)
        for thread in page.items:
            yield thread
        cursor = page.next_cursor
        if cursor is None:
            return


async def import_threads(args: argparse.Namespace) -> None:
    async with opened(args) as tl:
        importer = Importer(tl.store, tl.sealer, scope_of(tl))
        progress = Progress("Imported lines")
        with _seekable(args.file) as source:

            def lines() -> Iterator[bytes]:
                source.seek(0)
                return iter(lambda: source.readline(importer.longest_line + 1), b"")

            made = await importer.run(lines, progress=progress)
        progress.close()
    say(args, {"threads": made}, f"Imported {counted(len(made), 'thread')}: " + ", ".join(thread.id for thread in made))


@contextlib.contextmanager
def output_file(path: str | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        with Path(path).open("wb") as file:
            yield file
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be written: {exc.strerror}") from exc


@contextlib.contextmanager
def _seekable(path: str) -> Iterator[IO[bytes]]:
    """The file itself; standard input is kept in a temporary one, because an import reads it twice."""
    try:
        if path != "-":
            with Path(path).open("rb") as file:
                yield file
            return
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be read: {exc.strerror}") from exc
    with tempfile.TemporaryFile() as copy:
        while block := sys.stdin.buffer.read(1 << 20):
            copy.write(block)
        yield copy

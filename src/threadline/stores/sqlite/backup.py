"""Backup while the database is in use: one consistent state, copied page by page.

The copy is written beside its final name and takes that name when it is whole and synced, so that nobody finds half
of one. The source is read in one long read transaction; writers go on meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from threadline.core.errors import InvalidInput
from threadline.stores.sqlite.connection import Location, connect, translated

Progress: TypeAlias = Callable[[int, int], None]
"""Told after each step: how many pages are copied, how many there are."""

_PAGES_AT_A_TIME = 1_000


def copy(source: Location, target: Location, progress: Progress | None = None) -> None:
    """InvalidInput if there is something under the target's name already."""
    final = Path(target.name)
    if target.in_memory or final.exists():
        raise InvalidInput(f"{target.shown} cannot be a backup: name a file that does not exist yet")
    partial = final.with_name(final.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        _copy_pages(source, target._replace(name=str(partial)), progress)
        _sync(partial)
        partial.rename(final)
    finally:
        partial.unlink(missing_ok=True)
    _sync(final.parent)


def _copy_pages(source: Location, target: Location, progress: Progress | None) -> None:
    reading = connect(source, read_only=True)
    try:
        writing = connect(target)
        try:
            with translated(target.shown):
                # The source's read transaction keeps one state in sight; without it each commit would start it anew.
                reading.execute("BEGIN")
                with writing.backup("main", reading, "main") as copying:
                    while not copying.done:
                        copying.step(_PAGES_AT_A_TIME)
                        if progress is not None:
                            progress(copying.page_count - copying.remaining, copying.page_count)
                reading.execute("COMMIT")
        finally:
            writing.close()
    finally:
        reading.close()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

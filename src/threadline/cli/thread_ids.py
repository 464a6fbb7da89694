"""Finds the thread that a person names: by id, by state key, or by the first or last characters of its id.

Ids begin with the time, so those of one day begin alike: their last characters tell them apart. At least four are
needed, and a part that fits several threads is refused with their names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from threadline.cli.printable import printable, shorten
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.threads import Page, Thread
from threadline.threads.user_threads import Threads

LEAST_CHARACTERS = 4
# Over HTTP a page is a request: a hundred of them is what a person may wait for.
_MOST_THREADS = 10_000
_PAGE = 100
_NAMED = 5

ReadPage: TypeAlias = Callable[[str | None], Awaitable[Page[Thread]]]
"""Reads the page of threads after a cursor."""


async def find_thread(threads: Threads, name: str, *, deleted: bool = False) -> Thread:
    """NotFound, or InvalidInput if the name fits several threads. `deleted` finds deleted ones as well."""
    try:
        return await threads.find(name)
    except NotFound:
        if deleted and (found := await threads.get(name, deleted=True)) is not None:
            return found
        listed = [lambda cursor: threads.page(limit=_PAGE, cursor=cursor, archived=None)]
        if deleted:
            listed.append(lambda cursor: threads.page(limit=_PAGE, cursor=cursor, archived=None, deleted=True))
        part = await find_by_part(name, *listed)
        if part is None:
            raise
        return part


async def find_by_part(text: str, *read_pages: ReadPage) -> Thread | None:
    """The one thread whose id begins or ends with the text; None if there is none. InvalidInput for several."""
    if len(text) < LEAST_CHARACTERS or not text.isalnum():
        return None
    part = text.lower()
    found = [
        thread
        for read_page in read_pages
        async for thread in all_threads(read_page)
        if thread.id.startswith(part) or thread.id.endswith(part)
    ]
    if len(found) > 1:
        named = ", ".join(f"{each.id} ({shorten(printable(each.title or 'untitled'), 30)})" for each in found[:_NAMED])
        more = "" if len(found) <= _NAMED else f" and {len(found) - _NAMED} more"
        raise InvalidInput(f"thread {text!r} is ambiguous: {named}{more}; give more characters, or its last ones")
    return found[0] if found else None


def find_part(text: str, ids: list[str], what: str) -> str:
    """The one id that begins or ends with the text; the text itself if none does. InvalidInput for several."""
    found = [each for each in ids if each.startswith(text) or each.endswith(text)]
    if text in ids or len(text) < LEAST_CHARACTERS or not found:
        return text
    if len(found) > 1:
        raise InvalidInput(f"{what} {text!r} is ambiguous: {', '.join(found[:_NAMED])}; give more characters")
    return found[0]


async def all_threads(read_page: ReadPage, most: int = _MOST_THREADS) -> AsyncIterator[Thread]:
    """Threads, latest activity first, page by page."""
    cursor: str | None = None
    seen = 0
    while seen < most:
        page = await read_page(cursor)
        for thread in page.items:
            yield thread
        seen += len(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return

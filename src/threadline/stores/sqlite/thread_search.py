"""Search for threads: by the words of their titles, and by those of their messages, grouped by thread."""

from __future__ import annotations

from threadline.core.hidden_parts import WHOLE
from threadline.core.messages import from_us
from threadline.core.thread_filters import EVERY_THREAD, ThreadFilter
from threadline.core.threads import Page, ThreadHits
from threadline.stores.rows import Position, decode_cursor, encode_cursor
from threadline.stores.search_terms import Term
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.hidden_parts import hidden_of
from threadline.stores.sqlite.search import (
    RANKED,
    RANKED_WITH_FILTER,
    WORDS_AT_A_TIME,
    FoundThread,
    MessageVisibility,
    SearchOperations,
    ThreadMatcher,
    candidates,
    hit_at,
    owner_word,
    quote_words,
    terms_of,
)
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/search.sql")


class ThreadSearchOperations(SearchOperations):
    async def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[ThreadHits]:
        await self._catch_up()
        return await self._engine.read_large(find_threads, query, limit, cursor, passages, matching)


def find_threads(
    session: ScopedSession, query: str, limit: int, cursor: str | None, passages: int, matching: ThreadFilter
) -> Page[ThreadHits]:
    listing = repr(("search", session.tenant_id, session.user_id, query, matching))
    offset = 0 if cursor is None else decode_cursor(listing, cursor).at_us
    words = terms_of(query)
    if not words:
        return Page(())
    with session.snapshot():
        titled, numbers = _group(session, words, matching)
        found = [*titled, *(thread for thread in numbers if thread not in titled)]
        page = tuple(
            _thread_hits(session, thread, thread in titled, numbers.get(thread, []), words, passages)
            for thread in found[offset : offset + limit]
        )
    is_last = len(found) <= offset + limit
    return Page(page, None if is_last else encode_cursor(listing, Position(offset + limit, "")))


def _group(
    session: ScopedSession, words: list[Term], matching: ThreadFilter
) -> tuple[dict[FoundThread, None], dict[FoundThread, list[int]]]:
    """Threads by title, latest activity first; and by messages, best first, each with the numbers of its messages."""
    visibility, wanted = MessageVisibility(session), ThreadMatcher(session, matching)
    by_message: dict[FoundThread, list[int]] = {}
    for number in candidates(session, words, matching):
        thread = visibility.thread_of(number)
        if thread is not None and wanted.includes(thread.no) and WHOLE not in hidden_of(session, number):
            by_message.setdefault(thread, []).append(number)
    owner = owner_word(session.tenant_id, session.user_id)
    most = RANKED_WITH_FILTER if matching else RANKED
    # No title has that many words.
    wants_titles = len(words) <= WORDS_AT_A_TIME
    match = f"owner : {owner} AND {quote_words(words)}"
    titles = session.rows(_SQL["find_titles"], (match, most)) if wants_titles else []
    by_title = [thread for (number,) in titles if wanted.includes(number) and (thread := visibility.thread(number))]
    by_title.sort(key=lambda thread: (thread.updated_us, thread.id), reverse=True)
    return dict.fromkeys(by_title), by_message


def _thread_hits(
    session: ScopedSession, thread: FoundThread, is_title: bool, numbers: list[int], words: list[Term], passages: int
) -> ThreadHits:
    return ThreadHits(
        thread.id,
        thread.state_key,
        thread.title,
        from_us(thread.updated_us),
        is_title,
        len(numbers),
        tuple(hit_at(session, number, thread, words) for number in numbers[:passages]),
    )

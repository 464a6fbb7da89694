"""Search for messages that contain all words of a query, in the histories of the owner's threads.

Texts are split into words here, because PostgreSQL's parser treats an address or a path as one word. A background task
updates the index; a search first indexes the messages of its owner that are missing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import asyncpg

from threadline.core.messages import from_us
from threadline.core.parts import decode, plain_text
from threadline.core.thread_filters import EVERY_THREAD, ThreadFilter
from threadline.core.threads import Hit, Page, ThreadHits
from threadline.stores.postgres.messages import ROLES
from threadline.stores.postgres.session import Bodies, Operations, in_transaction
from threadline.stores.rows import Position, decode_cursor, encode_cursor
from threadline.stores.search_terms import index_text, query_terms
from threadline.stores.snippets import snippet
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/search.sql")
_WORD = re.compile(r"[^\W_]+")
_MAX_WORD_LENGTH = 200
_MAX_BYTES = 900_000
"""Below the megabyte that a tsvector may have."""
_BATCH_SIZE = 500
_RANKED = 1_000
_RANKED_WITH_FILTER = 10_000
"""So many of the newest messages with a frequent word are ranked; more where a filter chooses from them."""
PREFIX = "*"
"""No word contains it. The function `match_words` reads it."""


class SearchOperations(Operations):
    async def search(
        self, query: str, *, limit: int = 20, offset: int = 0, matching: ThreadFilter = EVERY_THREAD
    ) -> list[Hit]:
        words = _query_words(query)
        found = await self._find("search_messages", words, limit, offset, matching)
        return [self._hit(row, words) for row in found]

    async def search_threads(
        self,
        query: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        passages: int = 3,
        matching: ThreadFilter = EVERY_THREAD,
    ) -> Page[ThreadHits]:
        listing = f"search of {self.session.tenant_id}/{self.session.owner_id}, {query!r}, {matching}"
        offset = 0 if cursor is None else decode_cursor(listing, cursor).at_us
        words = _query_words(query)
        # One more than shown tells whether there is another page.
        found = await self._find("search_threads", words, limit + 1, offset, matching, passages)
        groups = [list(rows) for _, rows in groupby(found, key=itemgetter("thread_id"))]
        items = tuple(self._thread_hits(rows, words) for rows in groups[:limit])
        is_last = len(groups) <= limit
        return Page(items, None if is_last else encode_cursor(listing, Position(offset + limit, "")))

    async def _find(
        self, name: str, words: Sequence[str], limit: int, offset: int, matching: ThreadFilter, *more: int
    ) -> list[asyncpg.Record]:
        """Indexes first what the index lacks, if anything."""
        if not words:
            return []
        most = _RANKED_WITH_FILTER if matching else _RANKED
        conditions = (matching.labels, matching.surface, matching.since_us, matching.until_us, *more)
        page = (tuple(words), most, limit, offset)
        found = await self.session.call(_SQL[name], *page, False, *conditions, reads=True, is_large=True)
        if found and found[0]["thread_id"] is None:
            # A smaller batch means that nothing is left.
            while await self.index_some() >= _BATCH_SIZE:
                pass
            found = await self.session.call(_SQL[name], *page, True, *conditions, reads=True)
        return found

    def _hit(self, row: asyncpg.Record, words: Sequence[str]) -> Hit:
        text = text_of(self.session.internals.bodies.unpack(row["parts"]), row["hidden"] or ())
        return Hit(
            row["thread_id"],
            row["state_key"],
            row["title"],
            row["message_id"],
            row["seq"],
            ROLES[row["role"]],
            snippet(text, [word.removesuffix(PREFIX) for word in words]),
            from_us(row["created_us"]),
        )

    def _thread_hits(self, rows: Sequence[asyncpg.Record], words: Sequence[str]) -> ThreadHits:
        first = rows[0]
        return ThreadHits(
            first["thread_id"],
            first["state_key"],
            first["title"],
            from_us(first["updated_us"]),
            first["is_title"],
            first["hit_count"],
            tuple(self._hit(row, words) for row in rows if row["message_id"] is not None),
        )

    @in_transaction
    async def index_some(self) -> int:
        """Indexes some messages and titles of this scope that are not in the index yet. Returns how many."""
        unindexed = await self.session.rows(_SQL["unindexed_messages"], _BATCH_SIZE)
        if unindexed:
            entries = [_entry(self.session.internals.bodies, parts) for _, _, parts in unindexed]
            await self.session.rows(
                _SQL["index_messages"],
                [row["timeline_id"] for row in unindexed],
                [row["seq"] for row in unindexed],
                [size for size, _ in entries],
                [words for _, words in entries],
            )
        titles = await self.session.rows(_SQL["unindexed_titles"], _BATCH_SIZE)
        if titles:
            await self.session.rows(
                _SQL["index_titles"],
                [row["thread_id"] for row in titles],
                [row["title"] for row in titles],
                [" ".join(split_words(row["title"] or "")) for row in titles],
            )
        return len(unindexed) + len(titles)


def _query_words(query: str) -> list[str]:
    """The words of a query; one that ends with `*` matches all words that begin with it."""
    found: list[str] = []
    for term in query_terms(query):
        words = split_words(term.text)
        if words and term.is_prefix:
            words[-1] += PREFIX
        found += words
    return list(dict.fromkeys(found))


def split_words(text: str) -> list[str]:
    """The distinct words of a text, without case and without accents."""
    plain = index_text(text).casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", plain) if unicodedata.category(c)[0] != "M")
    return list(dict.fromkeys(word[:_MAX_WORD_LENGTH] for word in _WORD.findall(plain)))


def text_of(parts: bytes, hidden: Sequence[int] = ()) -> str:
    return plain_text([part for place, part in enumerate(decode(parts)) if place not in hidden])


def _entry(bodies: Bodies, stored: bytes) -> tuple[int, str]:
    """The number of words of a message, and the words in one string."""
    words = split_words(text_of(bodies.unpack(stored)))
    text = " ".join(words)
    if len(text.encode()) > _MAX_BYTES:
        text = text.encode()[:_MAX_BYTES].decode(errors="ignore").rpartition(" ")[0]
    return len(words), text

"""Search for messages that contain all words of a query, in the histories of the owner's threads.

Texts are split into words here, because PostgreSQL's parser treats an address or a path as one word. A background task
updates the index; a search first indexes the messages of its owner that are missing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import asyncpg

from threadline.core.messages import from_us
from threadline.core.parts import decode, plain_text
from threadline.core.threads import Hit
from threadline.stores.postgres.messages import ROLES
from threadline.stores.postgres.session import Bodies, Operations, in_transaction
from threadline.stores.search_terms import index_text, query_terms
from threadline.stores.snippets import snippet
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/search.sql")
_WORD = re.compile(r"[^\W_]+")
_MAX_WORD_LENGTH = 200
_MAX_BYTES = 900_000
"""Below the megabyte that a tsvector may have."""
_BATCH_SIZE = 500
PREFIX = "*"
"""No word contains it. The function `match_words` reads it."""


class SearchOperations(Operations):
    async def search(self, query: str, *, limit: int = 20, offset: int = 0) -> list[Hit]:
        words = _query_words(query)
        if not words:
            return []
        found = await self._find(words, limit, offset, caught_up=False)
        if found and found[0]["thread_id"] is None:
            # A smaller batch means that nothing is left.
            while await self.index_some() == _BATCH_SIZE:
                pass
            found = await self._find(words, limit, offset, caught_up=True)
        unpack, plain = self.session.internals.bodies.unpack, [word.removesuffix(PREFIX) for word in words]
        return [
            Hit(thread_id, state_key, title, message_id, seq, ROLES[role],
                snippet(text_of(unpack(parts), hidden or ()), plain), from_us(created_us))
            for thread_id, state_key, title, message_id, seq, role, parts, created_us, hidden in found
        ]  # fmt: skip

    async def _find(self, words: Sequence[str], limit: int, offset: int, *, caught_up: bool) -> list[asyncpg.Record]:
        return await self.session.call(_SQL["search_messages"], tuple(words), limit, offset, caught_up, reads=True)

    @in_transaction
    async def index_some(self) -> int:
        """Indexes some messages of this scope that are not in the index yet. Returns how many."""
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
        return len(unindexed)


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

"""Search: the words of a query, literally, in the present histories of the owner's living threads.

Each word is quoted, so that no operator of the index works. The index knows messages, not histories: whether a thread
shows a message now is looked up for each candidate, best first, until the page is full. Where more messages hold the
words than `_RANKED`, the owner's newest are ranked, so that a common word costs no more than a rare one.
"""

from __future__ import annotations

import unicodedata

from threadline.core.messages import ROLES, from_us
from threadline.core.parts import decode, plain_text
from threadline.core.threads import Hit
from threadline.stores.snippets import snippet
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.message_visibility import Showing
from threadline.stores.sqlite.search_index import index_some, is_pending, owner_word
from threadline.stores.sqlite.session import Row, ScopedSession

_SQL = load_queries(__package__, "queries/search.sql")
_AT_A_TIME = 500
_RANKED = 1_000
_WORDS_AT_A_TIME = 100
"""The index takes longer and longer over a query of many words; more than these are asked for in turn."""


class SearchOperations(Operations):
    async def search(self, query: str, *, limit: int = 20, offset: int = 0) -> list[Hit]:
        words = words_of(query)
        while await self._engine.read(has_pending):
            await self._engine.write_much(index_pending)
        return await self._engine.read_much(find_hits, words, limit, offset)


def has_pending(session: ScopedSession) -> bool:
    return is_pending(session.database)


def index_pending(session: ScopedSession) -> int:
    return index_some(session.database, _AT_A_TIME)


def words_of(query: str) -> list[str]:
    """What the index will take for words, each once. Marks between letters are left to it; marks alone are none."""
    return list(dict.fromkeys(word for word in query.split() if any(_is_letter(char) for char in word)))


def _is_letter(char: str) -> bool:
    # The categories that the index's tokenizer takes for parts of words.
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "Co"


def find_hits(session: ScopedSession, words: list[str], limit: int, offset: int) -> list[Hit]:
    if not words:
        return []
    hits: list[Hit] = []
    with session.snapshot():
        showing = Showing(session)
        for number in _candidates(session, words):
            row = showing.thread_of(number)
            if row is None:
                continue
            if offset > 0:
                offset -= 1
                continue
            hits.append(_hit(session, number, row, words))
            if len(hits) == limit:
                break
    return hits


def _candidates(session: ScopedSession, words: list[str]) -> list[int]:
    """Numbers of messages that hold all the words, best first."""
    query, unrelated = _query(words[:_WORDS_AT_A_TIME]), 0
    newest = session.rows(_SQL["find_newest"], (query, _RANKED + 1))
    if len(newest) > _RANKED:
        # The owner's own word is asked for only here: to meet it costs more than to look a few messages up in vain.
        query, unrelated = f"owner : {owner_word(session.tenant_id, session.user_id)} AND {query}", 1
        newest = session.rows(_SQL["find_newest"], (query, _RANKED))
    if not newest:
        return []
    ranked = [number for (number,) in session.rows(_SQL["rank_from"], (query, newest[-1][0], unrelated))]
    for first in range(_WORDS_AT_A_TIME, len(words), _WORDS_AT_A_TIME):
        rest = _query(words[first : first + _WORDS_AT_A_TIME])
        also = {number for (number,) in session.rows(_SQL["find_newest"], (rest, -1))}
        ranked = [number for number in ranked if number in also]
    return ranked


def _query(words: list[str]) -> str:
    return "words : (" + " ".join('"' + word.replace('"', '""') + '"' for word in words) + ")"


def _hit(session: ScopedSession, number: int, thread: Row, words: list[str]) -> Hit:
    row = session.row(_SQL["read_hit"], (number,))
    assert row is not None
    id, seq, role, parts, created_us = row
    text = plain_text(decode(parts))
    thread_id, state_key, title = thread
    return Hit(thread_id, state_key, title, id, seq, ROLES[role], snippet(text, words), from_us(created_us))

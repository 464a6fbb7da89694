"""Search: finds words, and the beginning of the last one, in the current history of the owner's threads.

Each word is quoted, so that no operator of the index works. The index contains messages, not histories: for each
candidate, best first, `MessageVisibility` looks up whether a thread's current history contains it, until the page is
full. If more than `RANKED` messages match, only the owner's newest are ranked, so a common word costs no more than a
rare one; of those that a filter has to choose from, `RANKED_WITH_FILTER`. A word that so many have is not taken for the
beginning of others. `thread_search.py` groups hits by thread.

The search index, which lags a little behind the messages: they are indexed in order of arrival.

`search_progress` is written in the same transaction, so a crash repeats nothing and skips nothing. Words are indexed
with their owner, so that a search visits only the owner's messages. FTS5 removes words by the exact text they were
added with: a change of `_words` needs another `RECIPE`, which rebuilds the index.
"""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from contextlib import suppress
from typing import NamedTuple

import apsw
import msgspec

from threadline.core.errors import StoreReadOnly
from threadline.core.hidden_parts import WHOLE
from threadline.core.messages import ROLES, from_us
from threadline.core.parts import decode, plain_text
from threadline.core.thread_filters import EVERY_THREAD, ThreadFilter
from threadline.core.threads import Hit
from threadline.stores.search_terms import Term, index_text, query_terms
from threadline.stores.snippets import snippet
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.connection import translate
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.hidden_parts import hidden_of
from threadline.stores.sqlite.lineage import holder
from threadline.stores.sqlite.session import Database, Row, ScopedSession

_SQL = load_queries(__package__, "queries/search.sql")


_AT_A_TIME = 500
RANKED = 1_000
RANKED_WITH_FILTER = 10_000
WORDS_AT_A_TIME = 100
"""The index takes longer and longer over a query of many words; more than these are asked for in turn."""


class SearchOperations(Operations):
    async def search(
        self, query: str, *, limit: int = 20, offset: int = 0, matching: ThreadFilter = EVERY_THREAD
    ) -> list[Hit]:
        await self._catch_up()
        return await self._engine.read_large(find_hits, terms_of(query), limit, offset, matching)

    async def _catch_up(self) -> None:
        # A store that was opened read-only finds what was indexed before.
        with suppress(StoreReadOnly):
            while await self._engine.read(has_pending):
                await self._engine.write_large(index_pending)


def has_pending(session: ScopedSession) -> bool:
    return is_pending(session.database)


def index_pending(session: ScopedSession) -> int:
    return index_some(session.database, _AT_A_TIME)


def terms_of(query: str) -> list[Term]:
    """What the index will take for words, each once. Marks between letters are left to it; marks alone are none."""
    return [term for term in query_terms(query) if any(_is_letter(char) for char in term.text)]


def _is_letter(char: str) -> bool:
    # The categories that the index's tokenizer takes for parts of words.
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "Co"


def find_hits(session: ScopedSession, words: list[Term], limit: int, offset: int, matching: ThreadFilter) -> list[Hit]:
    if not words:
        return []
    hits: list[Hit] = []
    with session.snapshot():
        visibility, wanted = MessageVisibility(session), ThreadMatcher(session, matching)
        for number in candidates(session, words, matching):
            row = visibility.thread_of(number)
            if row is None or not wanted.includes(row.no) or WHOLE in hidden_of(session, number):
                continue
            if offset > 0:
                offset -= 1
                continue
            hits.append(hit_at(session, number, row, words))
            if len(hits) == limit:
                break
    return hits


class FoundThread(NamedTuple):
    no: int
    id: str
    state_key: str
    title: str | None
    updated_us: int


class ThreadMatcher:
    def __init__(self, session: ScopedSession, matching: ThreadFilter) -> None:
        """For as long as the session's snapshot lasts."""
        labels = msgspec.json.encode(matching.labels).decode() if matching.labels else None
        self._session, self._known = session, dict[int, bool]()
        self._conditions = (matching.since_us, matching.surface, labels, matching.until_us) if matching else None

    def includes(self, thread_no: int) -> bool:
        if self._conditions is None:
            return True
        if thread_no not in self._known:
            ((matches,),) = self._session.rows(_SQL["matches_filter"], (thread_no, *self._conditions))
            self._known[thread_no] = bool(matches)
        return self._known[thread_no]


def candidates(session: ScopedSession, words: list[Term], matching: ThreadFilter) -> list[int]:
    """Numbers of messages that hold all the words, best first."""
    most = RANKED_WITH_FILTER if matching else RANKED
    ranked = _ranked(session, words[:WORDS_AT_A_TIME], most)
    for first in range(WORDS_AT_A_TIME, len(words), WORDS_AT_A_TIME):
        rest = quote_words(words[first : first + WORDS_AT_A_TIME])
        also = {number for (number,) in session.rows(_SQL["find_newest"], (rest, -1))}
        ranked = [number for number in ranked if number in also]
    return ranked


def _ranked(session: ScopedSession, words: list[Term], most: int) -> list[int]:
    query, whole = quote_words(words), quote_words([Term(word.text) for word in words])
    newest = session.rows(_SQL["find_newest"], (whole, most + 1))
    # The owner's own word is asked for only where too many match: to meet it costs more than to look a few messages up
    # in vain.
    owner = f"owner : {owner_word(session.tenant_id, session.user_id)} AND "
    if len(newest) <= most and query != whole:
        # For a prefix the index collects all messages before it gives the first: the same query is not asked twice.
        found = session.rows(_SQL["rank_newest"], (0, query, most + 1))
        if len(found) > most:
            found = session.rows(_SQL["rank_newest"], (1, owner + query, most))
        found.sort(key=lambda row: (row[1], row[0]), reverse=True)
        return [number for number, _ in found]
    # Where the word itself is frequent, longer words are not looked for: as many messages have it as are ranked.
    unrelated = 0
    if len(newest) > most:
        whole, unrelated = owner + whole, 1
        newest = session.rows(_SQL["find_newest"], (whole, most))
    if not newest:
        return []
    return [number for (number,) in session.rows(_SQL["rank_from"], (whole, newest[-1][0], unrelated))]


def quote_words(words: list[Term]) -> str:
    quoted = ('"' + word.text.replace('"', '""') + '"' + ("*" if word.is_prefix else "") for word in words)
    return "words : (" + " ".join(quoted) + ")"


def hit_at(session: ScopedSession, number: int, thread: FoundThread, words: list[Term]) -> Hit:
    row = session.row(_SQL["read_hit"], (number,))
    assert row is not None
    id, seq, role, parts, created_us = row
    hidden = hidden_of(session, number)
    text = plain_text([part for place, part in enumerate(decode(parts)) if place not in hidden])
    return Hit(
        thread.id,
        thread.state_key,
        thread.title,
        id,
        seq,
        ROLES[role],
        snippet(text, [word.text for word in words]),
        from_us(created_us),
    )


class _Origin(NamedTuple):
    """The source of branches: a thread, or a timeline whose thread is deleted."""

    timeline_no: int
    thread_no: int | None


class MessageVisibility:
    def __init__(self, session: ScopedSession) -> None:
        """For as long as the reach's snapshot lasts."""
        self._session = session
        self._present: dict[int, Row | None] = {}
        self._branches: dict[tuple[str, int], list[Row]] = {}

    def thread_of(self, message_no: int) -> FoundThread | None:
        """The thread the message was written in, if that still shows it; otherwise any that does."""
        place = self._session.row(_SQL["find_place"], (message_no, self._session.tenant_id, self._session.user_id))
        if place is None:
            return None
        written_on, seq, thread_no = place
        waiting, seen = [_Origin(written_on, thread_no)], {thread_no}
        while waiting:
            origin = waiting.pop()
            if origin.thread_no is not None:
                present = self._present_of(origin.thread_no)
                if present is not None and holder(present[0], seq, present[1]) == written_on:
                    return FoundThread(*present[2:])
            for number, ancestors, branched in self._branches_of(origin):
                if holder(number, seq, ancestors) == written_on and (branched is None or branched not in seen):
                    seen.add(branched)
                    waiting.append(_Origin(number, branched))
        return None

    def thread(self, thread_no: int) -> FoundThread | None:
        present = self._present_of(thread_no)
        return None if present is None else FoundThread(*present[2:])

    def _present_of(self, thread_no: int) -> Row | None:
        if thread_no not in self._present:
            whose = (thread_no, self._session.tenant_id, self._session.user_id)
            self._present[thread_no] = self._session.row(_SQL["find_present"], whose)
        return self._present[thread_no]

    def _branches_of(self, origin: _Origin) -> list[Row]:
        timeline_no, thread_no = origin
        kind, number = ("timeline", timeline_no) if thread_no is None else ("thread", thread_no)
        if (kind, number) not in self._branches:
            self._branches[kind, number] = self._session.rows(_SQL[f"list_branches_of_{kind}"], (number,))
        return self._branches[kind, number]


_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
_WORDS_COLUMN = 1


def closeness(api: apsw.FTS5ExtensionApi, /, *unrelated: apsw.SQLiteValue) -> float:
    """More for each time a word stands there, less for a long message. The number given is how many of the index's
    finds in each message are no words of the query."""
    (others,) = unrelated
    assert isinstance(others, int)
    found = api.inst_count - others
    average = api.column_total_size(_WORDS_COLUMN) / api.row_count
    length = api.column_size(_WORDS_COLUMN) / average
    return found / (found + _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length))


def register_ranking(connection: apsw.Connection) -> None:
    connection.register_fts5_function("closeness", closeness)


RECIPE = 2
_IDLE_AT_A_TIME = 32
_CUT_SHARE = 100
"""Up to one message in so many is removed singly; for more, rebuilding the index is faster."""
_log = logging.getLogger(__name__)


def owner_word(tenant_id: str, owner_id: str) -> str:
    """One word per owner. Queries cannot match it, because they search another column."""
    return "o" + hashlib.blake2b(f"{tenant_id} {owner_id}".encode(), digest_size=12).hexdigest()


def is_pending(database: Database) -> bool:
    return bool(database.rows(_SQL["is_pending"], (RECIPE,))[0][0])


def index_some(database: Database, limit: int) -> int:
    """Indexes up to `limit` messages, and as many titles, inside the open transaction; returns how many."""
    connection = database.connection
    pending = database.rows(_SQL["read_pending"], (_indexed_no(database), limit))
    for number, tenant_id, owner_id, parts in pending:
        words = _words(parts)
        if words:
            connection.execute(_SQL["add_words"], (number, owner_word(tenant_id, owner_id), words))
    if pending:
        connection.execute(_SQL["write_progress"], (pending[-1][0], RECIPE))
    return len(pending) + _index_titles(database, limit)


def _index_titles(database: Database, limit: int) -> int:
    connection = database.connection
    changed = database.rows(_SQL["read_unindexed_titles"], (limit,))
    for number, tenant_id, owner_id, title in changed:
        connection.execute(_SQL["remove_title"], (number,))
        if title:
            connection.execute(_SQL["add_title"], (number, owner_word(tenant_id, owner_id), index_text(title)))
        connection.execute(_SQL["note_title"], (title, number))
    return len(changed)


def index_when_idle(database: Database) -> bool:
    """Indexes a few messages in a transaction of its own; returns whether more are left. Housekeeping of the writer.

    It does not sync the disk: the index can be rebuilt from the messages, and the next commit syncs it too.
    """
    connection = database.connection
    try:
        if not is_pending(database):
            return False
        connection.pragma("synchronous", "NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        index_some(database, _IDLE_AT_A_TIME)
        connection.execute("COMMIT")
        return is_pending(database)
    except apsw.Error as exc:
        _log.warning("search index not updated: %s", translate(exc, database.location.shown))
        return False
    finally:
        with suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.pragma("synchronous", "FULL")


def _indexed_no(database: Database) -> int:
    """The number of the last indexed message; 0, after clearing the index, if another recipe made it."""
    ((indexed_no, recipe),) = database.rows(_SQL["read_progress"])
    if recipe == RECIPE:
        return int(indexed_no)
    database.rows(_SQL["forget_everything"])
    database.rows(_SQL["forget_titles"])
    database.rows(_SQL["write_progress"], (0, RECIPE))
    return 0


def forget_words(session: ScopedSession, messages: list[Row]) -> None:
    """Removes messages, given as (number, tenant, owner, parts), from the index, before their rows go.

    A few are removed from the index's pages one by one, at about a millisecond each. Many are marked as removed and
    then the index is rebuilt, which takes some seconds for a million messages, however many are marked.
    """
    indexed_no = _indexed_no(session.database)
    indexed = [row for row in messages if row[0] <= indexed_no]
    many = len(indexed) * _CUT_SHARE > indexed_no
    session.run(_SQL["remove_from_pages"], (not many,))
    for number, tenant_id, owner_id, parts in indexed:
        words = _words(parts)
        if words:
            session.run(_SQL["remove_words"], (number, owner_word(tenant_id, owner_id), words))
    if many:
        session.run(_SQL["merge_everything"])


def forget_numbers(session: ScopedSession) -> None:
    """After rows were removed: SQLite reuses the highest numbers for new messages, which are not indexed yet."""
    session.run(_SQL["lower_progress"])


def _words(parts: bytes) -> str:
    return index_text(plain_text(decode(parts)))

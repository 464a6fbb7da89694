"""The search index, which lags a little behind the messages: they are indexed in order of arrival.

`search_progress` is written in the same transaction, so a crash repeats nothing and skips nothing. Words are indexed
with their owner, so that a search visits only the owner's messages. FTS5 removes words by the exact text they were
added with: a change of `_words` needs another `RECIPE`, which rebuilds the index.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress

import apsw

from threadline.core.parts import decode, plain_text
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.connection import translate
from threadline.stores.sqlite.session import Database, Row, ScopedSession

RECIPE = 1
_AT_A_TIME = 32
_CUT_SHARE = 100
"""Up to one message in so many is removed singly; for more, rebuilding the index is faster."""
_log = logging.getLogger(__name__)
_SQL = load_queries(__package__, "queries/search.sql")


def owner_word(tenant_id: str, owner_id: str) -> str:
    """One word per owner. Queries cannot match it, because they search another column."""
    return "o" + hashlib.blake2b(f"{tenant_id} {owner_id}".encode(), digest_size=12).hexdigest()


def is_pending(database: Database) -> bool:
    return bool(database.rows(_SQL["is_pending"], (RECIPE,))[0][0])


def index_some(database: Database, limit: int) -> int:
    """Indexes up to `limit` messages inside the open transaction; returns how many."""
    connection = database.connection
    pending = database.rows(_SQL["read_pending"], (_indexed_no(database), limit))
    for number, tenant_id, owner_id, parts in pending:
        words = _words(parts)
        if words:
            connection.execute(_SQL["add_words"], (number, owner_word(tenant_id, owner_id), words))
    if pending:
        connection.execute(_SQL["write_progress"], (pending[-1][0], RECIPE))
    return len(pending)


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
        index_some(database, _AT_A_TIME)
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
    return plain_text(decode(parts))

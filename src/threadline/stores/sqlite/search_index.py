"""The search index, kept a little behind the log: words are taken from messages in their order of arrival.

`search_progress` says how far it came, in the same transaction, so a crash repeats nothing and skips nothing. Each
message's words are filed under its owner, so that a search meets only the owner's. Words are removed with the very
text they were made from; change `_words`, and `RECIPE` with it, and the index is made anew.
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
_IN_PASSING = 32
_CUT_SHARE = 100
"""One message in so many is cut out; if more go, it is quicker to write the index anew."""
_log = logging.getLogger(__name__)
_SQL = load_queries(__package__, "queries/search.sql")


def owner_word(tenant_id: str, owner_id: str) -> str:
    """One word for an owner; nobody can search for it, because queries look in another column."""
    return "o" + hashlib.blake2b(f"{tenant_id} {owner_id}".encode(), digest_size=12).hexdigest()


def is_pending(database: Database) -> bool:
    return bool(database.rows(_SQL["is_pending"], (RECIPE,))[0][0])


def index_some(database: Database, limit: int) -> int:
    """Takes in up to so many messages, inside the transaction that is open; how many it were."""
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
    """Takes in a few messages in a transaction of its own; whether there are more. An errand of the writer's.

    It does not wait for the disk: the index can be made again from the messages, and the next commit syncs it too.
    """
    connection = database.connection
    try:
        if not is_pending(database):
            return False
        connection.pragma("synchronous", "NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        index_some(database, _IN_PASSING)
        connection.execute("COMMIT")
        return is_pending(database)
    except apsw.Error as exc:
        _log.warning("the search index waits: %s", translate(exc, database.location.shown))
        return False
    finally:
        with suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.pragma("synchronous", "FULL")


def _indexed_no(database: Database) -> int:
    """How far the index came; nowhere, if its words were taken by another recipe."""
    ((indexed_no, recipe),) = database.rows(_SQL["read_progress"])
    if recipe == RECIPE:
        return int(indexed_no)
    database.rows(_SQL["forget_everything"])
    database.rows(_SQL["write_progress"], (0, RECIPE))
    return 0


def forget_words(session: ScopedSession, messages: list[Row]) -> None:
    """Removes messages, given as (number, tenant, owner, parts), from the index, before their rows go.

    A few are cut out of the index's pages one by one, at about a millisecond each. Many are struck out, and then the
    index is written anew without them, which takes some seconds for a million messages, however many are struck.
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
    """After rows went: their numbers, if they were the highest, are given again, to messages not indexed yet."""
    session.run(_SQL["lower_progress"])


def _words(parts: bytes) -> str:
    return plain_text(decode(parts))

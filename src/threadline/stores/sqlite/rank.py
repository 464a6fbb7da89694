"""How well a message fits a search: the share of BM25 that the message itself decides.

What BM25 adds to it, how rare each word is in the whole index, would have to be counted through every message that
holds the word (60 ms for a million), and where all words must be there it hardly changes the order.
"""

from __future__ import annotations

import apsw

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


def register(connection: apsw.Connection) -> None:
    connection.register_fts5_function("closeness", closeness)

"""What a text is indexed under, and what a query looks for. Both stores use it.

Scripts that are written without spaces (Han, kana, Thai, Lao, Khmer, Burmese, Tibetan) are cut into overlapping pairs
of characters, in texts and in queries, so that any part of a sentence is found. The last word of a query also matches
words that begin with it, because people search while they type; a space after it asks for the whole word.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import NamedTuple

_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"
    "\u3041-\u3096\u3099-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af]+"
)
_SHORTEST_PREFIX = 3
"""Fewer letters begin so many words that a search for them would be slow and find everything."""


class Term(NamedTuple):
    """A word that must occur; with `is_prefix` any word that begins with it."""

    text: str
    is_prefix: bool = False


def index_text(text: str) -> str:
    """The text with each run of an unspaced script replaced by its pairs."""
    if text.isascii():
        return text
    return _UNSPACED.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def query_terms(query: str) -> list[Term]:
    """Each once, in order. Words are not split at marks such as hyphens: each store does that as it does in texts."""
    terms: list[Term] = []
    for word in query.split():
        end = 0
        for run in _UNSPACED.finditer(word):
            terms += [Term(text) for text in (word[end : run.start()],) if text]
            pairs = _pairs(run[0])
            # A single character is found as the beginning of a pair.
            terms += [Term(pair, len(pair) == 1) for pair in pairs]
            end = run.end()
        if end < len(word):
            terms.append(Term(word[end:]))
    if terms and not query[-1].isspace() and not _UNSPACED.search(query[-1]):
        last = terms[-1].text
        terms[-1] = Term(last, sum(char.isalnum() for char in last) >= _SHORTEST_PREFIX)
    return list(dict.fromkeys(terms))


def _pairs(run: str) -> list[str]:
    letters = [char for char in unicodedata.normalize("NFKD", run) if char.isalnum()]
    if len(letters) < 2:
        return letters
    return [first + second for first, second in pairwise(letters)]

"""Snippets: a few words of a message around the first one that was searched for. Both stores use them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_BEFORE = 40
_LENGTH = 160
_WORD = re.compile(r"\w+")


def snippet(text: str, words: Sequence[str]) -> str:
    """One line of at most about 160 characters, cut between words where it can be."""
    wanted = {_plain(part) for word in words for part in _WORD.findall(word)}
    places = [(found.start(), _plain(found[0])) for found in _WORD.finditer(text)]
    whole = next((at for at, word in places if word in wanted), None)
    # Otherwise the beginning of a word, or a part of a sentence without spaces.
    part = next((at for at, word in places if any(each in word for each in wanted)), 0) if whole is None else 0
    at = part if whole is None else whole
    start = _forward(text, max(0, at - _BEFORE), at) if at > _BEFORE else 0
    end = min(len(text), start + _LENGTH)
    if end < len(text):
        end = max(text.rfind(" ", at + 1, end), end - _BEFORE)
    shown = " ".join(text[start:end].split())
    return ("… " if start else "") + shown + (" …" if end < len(text) else "")


def _forward(text: str, start: int, limit: int) -> int:
    """The beginning of the next word after `start`, not past `limit`."""
    gap = text.find(" ", start, limit)
    return start if gap < 0 else gap + 1


def _plain(word: str) -> str:
    """As the index compares words: without case and without accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(c))

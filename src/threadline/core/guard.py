"""The pattern guard: rejects texts that match configured regular expressions. Off unless patterns are set.

Texts are matched in a normal form (NFKC, without invisible characters, case folded), so that look-alike spellings match
too. Patterns run on RE2 if it is installed and supports them, so that no text makes them slow; `\\w`, `\\b`, `\\d` and
`\\s` mean ASCII in both engines.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from threadline.core.errors import SettingsInvalid, quote
from threadline.core.threads import Scope

try:
    import re2
except ImportError:  # the extra `masking` is not installed
    re2 = None

_Search: TypeAlias = Callable[[str], Any]


class PatternGuard:
    """`message` is the sentence for the user. SettingsInvalid names a pattern that is not a regular expression."""

    def __init__(self, patterns: Sequence[str], message: str, *, with_re2: bool | None = None) -> None:
        on_re2 = re2 is not None if with_re2 is None else with_re2
        self._message = message
        self._searches = [_search(pattern, on_re2=on_re2) for pattern in patterns]

    async def check(self, text: str, scope: Scope) -> str | None:
        plain = normal_form(text)
        return self._message if any(search(plain) for search in self._searches) else None


def normal_form(text: str) -> str:
    """The text without differences of case, spelling and invisible characters."""
    if text.isascii():
        return text.lower()
    visible = "".join(char for char in unicodedata.normalize("NFKC", text) if not _is_invisible(char))
    return unicodedata.normalize("NFKC", visible.casefold())


def _is_invisible(char: str) -> bool:
    # RE2 cannot encode lone surrogates; variation selectors and blank letters are not in category Cf.
    if unicodedata.category(char) in {"Cf", "Cs"}:
        return True
    return "\ufe00" <= char <= "\ufe0f" or char in "\u115f\u1160\u3164\u034f"


def _search(pattern: str, *, on_re2: bool) -> _Search:
    # Escapes are ASCII, so folding the other characters changes only letters.
    folded = "".join(char if char.isascii() else normal_form(char) for char in pattern)
    try:
        found = re.compile(folded, re.IGNORECASE | re.ASCII)
    except re.error as exc:
        raise SettingsInvalid(f"guard pattern {quote(pattern)} is not a regular expression: {exc}") from exc
    return (_re2_search(folded) if on_re2 else None) or found.search


def _re2_search(pattern: str) -> _Search | None:
    """None for patterns that RE2 does not support: look-arounds and back-references."""
    options: Any = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    try:
        search: _Search = re2.compile(pattern, options).search
    except re2.error:
        return None
    return search

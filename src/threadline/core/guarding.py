"""The pattern guard: refuses a text by configured regular expressions. Off unless patterns are set.

Texts are matched in one normal form (NFKC, without zero-width characters, case folded), so that a look-alike spelling
does not slip through.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from threadline.core.errors import SettingsInvalid
from threadline.core.threads import Scope


class PatternGuard:
    def __init__(self, patterns: Sequence[str], message: str) -> None:
        self._message = message
        try:
            self._patterns = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
        except re.error as exc:
            raise SettingsInvalid(f"guard pattern {exc.pattern!r} is not a regular expression: {exc}") from exc

    async def check(self, text: str, scope: Scope) -> str | None:
        plain = normal_form(text)
        return self._message if any(pattern.search(plain) for pattern in self._patterns) else None


def normal_form(text: str) -> str:
    visible = (char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) != "Cf")
    return "".join(visible).casefold()

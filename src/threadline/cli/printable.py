"""Texts made safe to show.

What a model or a stranger wrote may hold control sequences that move the cursor, change the title or fill the
clipboard. `shown` turns every one into visible text; everything printed for a person passes through it.
"""

from __future__ import annotations

import unicodedata

JOINERS = "\u200c\u200d\ufe0e\ufe0f"
"""Characters without a width of their own that are kept: they make one picture of several."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_LONGEST_RUN_OF_MARKS = 8


def shown(text: str, *, multiline: bool = False) -> str:
    """The text with nothing in it that a terminal would obey, and no more marks on a letter than a line can hold."""
    out: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        if marks > _LONGEST_RUN_OF_MARKS:
            continue
        if (multiline and char in "\n\t") or char in JOINERS or unicodedata.category(char) not in _HIDDEN:
            out.append(char)
        else:
            out.append(f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
    return "".join(out)


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def without_password(url: str) -> str:
    """A database's address as others may see it."""
    scheme, found, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    return f"{scheme}://{credentials.partition(':')[0]}@{place}" if found and at else url

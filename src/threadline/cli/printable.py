"""Escapes text before it is printed to a terminal.

Text from a model, a tool or another user can contain control sequences that move the cursor, change the window title
or write to the clipboard. `printable` replaces each of them with a visible escape; every text from outside passes
through it before it is printed.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

JOINERS = "\u200c\u200d\ufe0e\ufe0f"
"""Zero-width characters that are kept: they join several emoji into one."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MAX_COMBINING_MARKS = 8


def printable(text: str, *, multiline: bool = False) -> str:
    """Replaces control and format characters with escapes such as `\\x1b`, and drops combining marks after the eighth
    on one letter. Keeps newlines and tabs if `multiline`."""
    out: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        if marks > _MAX_COMBINING_MARKS:
            continue
        if (multiline and char in "\n\t") or char in JOINERS or unicodedata.category(char) not in _HIDDEN:
            out.append(char)
        else:
            out.append(f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
    return "".join(out)


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def without_password(url: str) -> str:
    """A database URL with the password removed, for printing."""
    scheme, found, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    return f"{scheme}://{credentials.partition(':')[0]}@{host}" if found and at else url


def short_folder(folder: str | None) -> str:
    """A folder for a list: `~` is the user's home, "" is none."""
    if folder is None:
        return ""
    home = str(Path.home())
    return f"~{folder[len(home) :]}" if folder == home or folder.startswith(f"{home}/") else folder

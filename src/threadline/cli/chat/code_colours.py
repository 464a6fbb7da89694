"""Colours for lines of code, by pygments, which rich brings along."""

from __future__ import annotations

from collections.abc import Callable


def highlighter(language: str) -> Callable[[str], str]:
    """Colours one line of code; `str` if the language is unknown or pygments is not installed."""
    if not language:
        return str
    try:
        from pygments import highlight  # noqa: PLC0415 - an extra, and slow to import
        from pygments.formatters import TerminalFormatter  # noqa: PLC0415
        from pygments.lexers import get_lexer_by_name  # noqa: PLC0415
        from pygments.util import ClassNotFound  # noqa: PLC0415
    except ModuleNotFoundError:
        return str
    try:
        lexer = get_lexer_by_name(language.split()[0].lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return str
    formatter = TerminalFormatter()
    # Line by line: a string over several lines loses its colour, but no line waits for the end of the block.
    return lambda line: str(highlight(line, lexer, formatter)).rstrip("\n")

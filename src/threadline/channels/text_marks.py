"""Blocks as one text with inline marks such as `*bold*`, for Slack and WhatsApp.

A mark counts only directly at the edge of a word, and cannot be escaped. So a style is omitted where the platform would
show its mark as a character; the text itself is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from threadline.channels.markdown import Block, Span, Style

_FENCE = "```"
_BROKEN_FENCE = "``\u200b`"
"""Three backticks would end the code block, so a zero-width space separates them."""


class Marks(NamedTuple):
    """The marks of one platform. `link` gets the text and the URL."""

    styles: Mapping[Style, str]
    escape: Callable[[str], str]
    link: Callable[[str, str], str]


def render_marked(blocks: Sequence[Block], marks: Marks) -> str:
    return "\n\n".join(_block(block, marks) for block in blocks)


def _block(block: Block, marks: Marks) -> str:
    if block.kind == "code":
        return f"{_FENCE}\n{marks.escape(block.text.replace(_FENCE, _BROKEN_FENCE))}\n{_FENCE}"
    text = "".join(
        _span(span, marks, _edge(block.spans, at - 1, -1), _edge(block.spans, at + 1, 0))
        for at, span in enumerate(block.spans)
    )
    if block.kind == "quote":
        return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    return text


def _edge(spans: Sequence[Span], at: int, end: int) -> str:
    return spans[at].text[end] if 0 <= at < len(spans) else ""


def _span(span: Span, marks: Marks, before: str, after: str) -> str:
    """A mark must touch the text and cannot span lines, so each line is marked separately."""
    lines = span.text.split("\n")
    edges = [before, *["\n"] * (len(lines) - 1)], [*["\n"] * (len(lines) - 1), after]
    return "\n".join(_line(line, span, marks, first, last) for line, first, last in zip(lines, *edges, strict=True))


def _line(line: str, span: Span, marks: Marks, before: str, after: str) -> str:
    core = line.strip()
    if not core:
        return line
    lead, trail = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
    marked = marks.escape(core)
    if span.href is not None:
        marked = marks.link(core, span.href)
    elif not (_is_word(lead or before) or _is_word(trail or after)):
        for style, mark in marks.styles.items():
            if style in span.styles and mark not in core:
                marked = f"{mark}{marked}{mark}"
    return f"{lead}{marked}{trail}"


def _is_word(edge: str) -> bool:
    return edge.isalnum() or edge == "_"

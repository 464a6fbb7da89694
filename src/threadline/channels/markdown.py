"""An agent's Markdown as the few elements that every platform can show.

A text becomes `Block`s of `Span`s: text, code, quotes. Lists, headings and tables are laid out with plain characters,
because platforms differ in them. Any text can be parsed: there is no malformed Markdown. HTML is plain text, and
nothing is fetched, images included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from threadline.core.errors import ExtraMissing

try:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
except ModuleNotFoundError as exc:
    raise ExtraMissing("channels", "a messaging platform") from exc

Style: TypeAlias = Literal["bold", "italic", "strike", "code"]
Kind: TypeAlias = Literal["text", "code", "quote"]

_STYLES: dict[str, Style] = {"strong": "bold", "em": "italic", "s": "strike"}
_BULLETS = ("•", "◦", "▪")
_LINKABLE = ("https://", "http://", "mailto:", "tel:")
_RULE = "―" * 8
_INDENT = "   "
_PLAIN: frozenset[Style] = frozenset()
_BOLD: frozenset[Style] = frozenset(("bold",))

_DEEPEST = 60
_SECTION = 8_000
_LONGEST_SECTION = 20_000
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")

_parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST}).enable(["strikethrough", "table"])
# A line like `[name]: url` would disappear from the output; an agent that writes one means it as text.
_parser.disable("reference")


class Span(NamedTuple):
    text: str
    styles: frozenset[Style] = _PLAIN
    href: str | None = None


class Block(NamedTuple):
    """A paragraph, code block or quote, separated by empty lines. Code is one span without styles."""

    kind: Kind
    spans: tuple[Span, ...]
    language: str | None = None

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def parse_markdown(text: str) -> list[Block]:
    return [block for section in _sections(text) for block in _read(section) if block.text.strip()]


def _sections(text: str) -> Iterator[str]:
    """A long text in sections, split at empty lines; a long code block becomes several. Bounded, because the parser's
    time grows with the square of the length for hostile texts."""
    held: list[str] = []
    size, fence, opening = 0, "", ""
    for line in text.splitlines(keepends=True):
        held.append(line)
        size += len(line)
        mark = _FENCE.match(line)
        if mark is not None and (not fence or line.strip().startswith(fence)):
            fence, opening = ("", "") if fence else (mark[1], line)
        if size >= _SECTION and (fence or not line.strip()):
            yield "".join([*held, fence])
            held, size = [opening], len(opening)
    yield "".join(held)


def _read(section: str) -> Iterable[Block]:
    if len(section) > _LONGEST_SECTION:
        return [Block("text", (Span(section.strip()),))]
    tokens = _parser.parse(section)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        # The parser omits text that is nested deeper than its limit, so such a section is shown as it is.
        return [Block("text", (Span(section.strip()),))]
    return _Layout(tokens).blocks()


class _Layout:
    """Converts the flat list of tokens. Inside lists and quotes, `lines` collects the lines of one block."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = iter(tokens)
        self._quotes = 0
        self._numbers: list[int | None] = []
        self._marker: str | None = None
        self._lines: list[list[Span]] = []

    def blocks(self) -> Iterator[Block]:
        for token in self._tokens:
            if token.type in ("fence", "code_block"):
                yield from self._flush()
                language = token.info.split()[0] if token.info.strip() else None
                yield Block("code", (Span(token.content.rstrip("\n")),), language)
            elif token.type == "table_open":
                yield from self._flush()
                yield Block("code", (Span(_table(self._tokens)),))
            else:
                yield from self._place(token)
        yield from self._flush()

    def _place(self, token: Token) -> Iterator[Block]:
        match token.type:
            case "inline":
                self._add(_spans(token.children or []))
            case "hr":
                self._add([Span(_RULE)])
                yield from self._flush_outside_list()
            case "heading_open":
                # The next token is the heading's only inline token.
                self._add(_spans(next(self._tokens).children or [], _BOLD))
            case "paragraph_close" | "heading_close":
                yield from self._flush_outside_list()
            case "list_item_open":
                self._marker = self._next_marker()
            case "bullet_list_open":
                self._numbers.append(None)
            case "ordered_list_open":
                self._numbers.append(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
                yield from self._flush_outside_list()
            case "blockquote_open":
                yield from self._flush()
                self._quotes += 1
            case "blockquote_close":
                yield from self._flush()
                self._quotes -= 1

    def _next_marker(self) -> str:
        number = self._numbers[-1]
        if number is None:
            return _BULLETS[min(len(self._numbers), len(_BULLETS)) - 1]
        self._numbers[-1] = number + 1
        return f"{number}."

    def _add(self, spans: Iterable[Span]) -> None:
        depth = max(len(self._numbers) - 1, 0)
        if self._marker is not None:
            lead, self._marker = f"{_INDENT * depth}{self._marker} ", None
        else:
            lead = _INDENT * len(self._numbers)
        self._lines.append([Span(lead), *spans] if lead else list(spans))

    def _flush_outside_list(self) -> Iterator[Block]:
        """Ends the block, unless a list continues around it."""
        if not self._numbers:
            yield from self._flush()

    def _flush(self) -> Iterator[Block]:
        lines, self._lines = self._lines, []
        if lines:
            joined = [span for line in lines for span in (Span("\n"), *line)][1:]
            yield Block("quote" if self._quotes else "text", tuple(merge_spans(joined)))


def _spans(children: Sequence[Token], styles: frozenset[Style] = _PLAIN) -> list[Span]:
    found: list[Span] = []
    href: str | None = None
    for token in children:
        style = _STYLES.get(token.tag) if token.nesting else None
        if style is not None:
            styles = styles | {style} if token.nesting > 0 else styles - {style}
        elif token.type == "link_open":
            href = _linkable(token)
        elif token.type == "link_close":
            href = None
        elif token.type == "image":
            found.append(Span(token.content or "image", styles, href or _linkable(token)))
        elif token.type in ("softbreak", "hardbreak"):
            found.append(Span("\n", styles, href))
        elif token.type == "code_inline":
            found.append(Span(token.content, styles | {"code"}, href))
        else:
            found.append(Span(token.content, styles, href))
    return found


def _linkable(token: Token) -> str | None:
    href = str(token.attrGet("href") or token.attrGet("src") or "")
    return href if href.lower().startswith(_LINKABLE) else None


def _table(tokens: Iterator[Token]) -> str:
    """Columns padded with spaces: monospaced text is the only kind of table that all platforms show."""
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append("".join(span.text for span in _spans(token.children or [])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def merge_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """The same text in as few spans as possible."""
    held: Span | None = None
    for span in spans:
        if not span.text:
            continue
        if held is not None and held[1:] == span[1:]:
            held = held._replace(text=held.text + span.text)
            continue
        if held is not None:
            yield held
        held = span
    if held is not None:
        yield held

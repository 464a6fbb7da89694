"""Telegram's entities: ranges of a text, in UTF-16 units, that are bold, code or links.

`compose` writes them for outgoing blocks; `with_addresses` reads those of incoming messages, clipped to the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from threadline.channels.markdown import Block, Span, Style
from threadline.channels.text_split import BETWEEN, Size

_TYPES: dict[Style, str] = {"bold": "bold", "italic": "italic", "strike": "strikethrough"}


class Person(msgspec.Struct):
    id: int
    is_bot: bool = False
    first_name: str = ""


class Entity(msgspec.Struct):
    type: str
    offset: int
    length: int
    url: str | None = None
    user: Person | None = None
    """Of a mention of a person without a user name."""


def units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def measure(block: Block) -> Size:
    return Size(units(block.text), len(_entities(block, 0)))


def compose(blocks: Sequence[Block]) -> dict[str, Any]:
    """The text and its entities, as parameters of `sendMessage`."""
    text, entities = "", list[dict[str, Any]]()
    for block in blocks:
        text += BETWEEN if text else ""
        entities += _entities(block, units(text))
        text += block.text
    return {"text": text, "entities": entities} if entities else {"text": text}


def _entities(block: Block, start: int) -> list[dict[str, Any]]:
    if block.kind == "code":
        language = {"language": block.language} if block.language else {}
        return [{"type": "pre", "offset": start, "length": units(block.text), **language}]
    found: list[dict[str, Any]] = []
    if block.kind == "quote":
        found.append({"type": "blockquote", "offset": start, "length": units(block.text)})
    at = start
    for span in block.spans:
        found += [{**entity, **_visible_range(span.text, at)} for entity in _kinds(span) if span.text.strip()]
        at += units(span.text)
    return found


def _kinds(span: Span) -> list[dict[str, Any]]:
    # Telegram does not allow other entities inside or around code.
    if "code" in span.styles:
        return [{"type": "code"}]
    kinds = [{"type": name} for style, name in _TYPES.items() if style in span.styles]
    return [*kinds, {"type": "text_link", "url": span.href}] if span.href and span.href != span.text else kinds


def _visible_range(text: str, at: int) -> dict[str, int]:
    """The range without surrounding white space: Telegram rejects an entity of white space only."""
    lead = len(text) - len(text.lstrip())
    return {"offset": at + units(text[:lead]), "length": units(text.strip())}


def with_addresses(text: str, entities: Sequence[Entity]) -> str:
    """The text with the URL of each link after its label. Invalid ranges are clipped."""
    wide = text.encode("utf-16-le", "surrogatepass")
    links = [entity for entity in entities if entity.type == "text_link" and entity.url and entity.length > 0]
    for link in sorted(links, key=lambda entity: entity.offset, reverse=True):
        end = min(max(link.offset + link.length, 0) * 2, len(wide))
        if 0xDC <= (wide[end + 1] if end < len(wide) else 0) <= 0xDF:
            end += 2  # The range ends inside a character.
        if link.offset >= 0 and link.offset * 2 < len(wide):
            wide = wide[:end] + f" ({link.url})".encode("utf-16-le", "surrogatepass") + wide[end:]
    return wide.decode("utf-16-le", "surrogatepass")

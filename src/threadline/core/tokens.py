"""Estimated token counts: cheap, deterministic, and rather too high than too low.

An estimate that is too low costs a rejected request, one that is too high a few old turns. Exact counts need the
vocabulary of each model and a hundred times the time; a caller that has them can pass a `CountTokens` function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from threadline.core.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart
from threadline.core.prompts import PromptMessage, file_note

_IMAGE_TYPE = b'"media_type":"image/'
_IMAGE_DATA = re.compile(rb'"media_type":"image/[a-z+.-]+","data":"[A-Za-z0-9+/=]{64,}"')
"""An image in the output of a tool, which models get as an image."""
CountTokens: TypeAlias = Callable[[str], int]

_MESSAGE_OVERHEAD = 4
"""Role and delimiters, as in every published chat format."""
_IMAGE = 1_600
"""The cost of a full-size image at the larger providers."""


def estimate(text: str) -> int:
    """One token per 3.5 characters, plus one per 2.5 bytes beyond one byte per character.

    Measured with OpenAI's cl100k and o200k vocabularies: English has 4.3 characters per token, Python 4.0; Russian,
    Hindi, Chinese and Japanese 0.4 to 1.0 tokens per character with the older vocabulary, fewer with the newer. The
    estimate is above all of these except Hindi with the older vocabulary (0.9 of it)."""
    characters = len(text)
    extra = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - characters
    return -(-(10 * characters + 14 * extra) // 35)


def message_tokens(message: PromptMessage, count: CountTokens = estimate) -> int:
    tokens = _MESSAGE_OVERHEAD
    # A loop and not a sum over a generator: a prompt counts thousands of messages of one part.
    for part in message.parts:
        tokens += count(part.text) if type(part) is TextPart else _part_tokens(part, count)
    return tokens


def total_tokens(messages: Iterable[PromptMessage], count: CountTokens = estimate) -> int:
    tokens = 0
    for message in messages:
        tokens += message_tokens(message, count)
    return tokens


def _part_tokens(part: Part, count: CountTokens) -> int:
    match part:
        case TextPart():
            return count(part.text)
        case ReasoningPart():
            return count(part.text)
        case ToolPart():
            tokens = count(part.name) + count(part.error or "")
            return tokens + _json_tokens(part.input, count) + _json_tokens(part.output, count)
        case FilePart():
            return _file_tokens(part, count)
    return 0


def _json_tokens(raw: bytes | None, count: CountTokens) -> int:
    if raw is None:
        return 0
    images = _IMAGE_DATA.findall(raw) if _IMAGE_TYPE in raw else ()
    text = _IMAGE_DATA.sub(b"", raw) if images else raw
    # Quotes and brackets are tokens too: JSON measured at 1.25 times the estimate of its text.
    return count(text.decode()) * 5 // 4 + len(images) * _IMAGE


def _file_tokens(part: FilePart, count: CountTokens) -> int:
    if part.media_type.startswith("image/"):
        return _IMAGE
    # Three quarters of base64 is the file itself, at about three bytes per token: close for text, generous for a PDF.
    return max(count(file_note(part)), len(part.url) // 4) if part.url.startswith("data:") else count(file_note(part))

"""Tokens, estimated: cheap, the same on every machine, and rather too many than too few.

An estimate too low costs a refused request, one too high a few old turns. Exact counts need a vocabulary per model and
a hundred times the time; whoever has one can pass it wherever a `CountTokens` is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from threadline.core.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart
from threadline.core.prompts import PromptMessage, file_note

CountTokens: TypeAlias = Callable[[str], int]

_MESSAGE_OVERHEAD = 4
"""Role and delimiters, in every chat format that publishes its own."""
_IMAGE = 1_600
"""What the larger providers charge for an image of full size."""


def estimate(text: str) -> int:
    """Measured with OpenAI's cl100k and o200k vocabularies: English 4.3 characters a token, Python 4.0; Russian,
    Hindi, Chinese and Japanese 1.0 to 0.4 tokens a character by the older, less by the newer. A token for each 3.5
    characters, and for each 2.5 bytes that are more than one a character, is above all of these but the older
    vocabulary's Hindi (0.9 of it)."""
    characters = len(text)
    extra = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - characters
    return -(-(10 * characters + 14 * extra) // 35)


def message_tokens(message: PromptMessage, count: CountTokens = estimate) -> int:
    return _MESSAGE_OVERHEAD + sum(_part_tokens(part, count) for part in message.parts)


def total_tokens(messages: Iterable[PromptMessage], count: CountTokens = estimate) -> int:
    return sum(message_tokens(message, count) for message in messages)


def _part_tokens(part: Part, count: CountTokens) -> int:
    match part:
        case TextPart():
            return count(part.text)
        case ReasoningPart():
            return count(part.text)
        case ToolPart():
            said = count(part.name) + count(part.error or "")
            return said + _json_tokens(part.input, count) + _json_tokens(part.output, count)
        case FilePart():
            return _file_tokens(part, count)
    return 0


def _json_tokens(raw: bytes | None, count: CountTokens) -> int:
    # Quotes and brackets are tokens of their own: JSON measured at 1.25 times the estimate of its text.
    return 0 if raw is None else count(raw.decode()) * 5 // 4


def _file_tokens(part: FilePart, count: CountTokens) -> int:
    if part.media_type.startswith("image/"):
        return _IMAGE
    # Three quarters of base64 are the file's own bytes; that is close enough for text and generous for a PDF.
    return max(count(file_note(part)), len(part.url) // 4) if part.url.startswith("data:") else count(file_note(part))

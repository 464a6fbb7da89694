"""Makes the parts of a message fit the limits of a store: what is too long is cut, and says so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from threadline.core import jsontext
from threadline.core import parts as parts_
from threadline.core.parts import DataPart, FilePart, Part, ReasoningPart, TextPart, ToolPart
from threadline.importers.report import SourceReport

_MESSAGE_BYTES = 1_000_000
_MOST_PARTS = 990


def fit_parts(parts: Sequence[Part], report: SourceReport) -> tuple[Part, ...]:
    """Signed reasoning is never cut: it would be worth nothing."""
    fitted = tuple(parts)
    if len(fitted) > _MOST_PARTS:
        report.notes["messages shortened"] += 1
        left_out = DataPart("omitted", {"parts": len(fitted) - _MOST_PARTS})
        fitted = (*fitted[:_MOST_PARTS], left_out)
    longest = 500_000
    while len(parts_.encode(fitted)) > _MESSAGE_BYTES and longest > 100:
        if longest == 500_000:
            report.notes["messages shortened"] += 1
        fitted = tuple(_cut(part, longest) for part in fitted)
        longest //= 4
    return fitted


def _cut(part: Part, longest: int) -> Part:
    match part:
        case TextPart() if len(part.text) > longest:
            return TextPart(_shorten(part.text, longest))
        case ReasoningPart(provider_metadata=None) if len(part.text) > longest:
            return ReasoningPart(_shorten(part.text, longest))
        case FilePart() if len(part.url) > longest:
            return DataPart("omitted", {"mediaType": part.media_type, "characters": len(part.url)})
        case DataPart():
            written = jsontext.dump(part.data)
            if len(written) > longest:
                return DataPart(part.name, {"omitted": "too long", "bytes": len(written)}, part.id)
        case ToolPart():
            return msgspec.structs.replace(
                part,
                input=_cut_json(part.input, longest),
                output=_cut_json(part.output, longest),
                error=None if part.error is None else _shorten(part.error, longest),
            )
    return part


def _cut_json(raw: bytes | None, longest: int) -> bytes | None:
    if raw is None or len(raw) <= longest:
        return raw
    return jsontext.dump(_shorten(raw.decode(), longest))


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}\n[… {len(text) - longest:,} characters were left out]"

"""What the log shows of a framework's message: its parts, or what a stored message can hold of them.

The framework's own form is stored beside the log, so what does not fit is cut here without loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from threadline.core.parts import Part, TextPart, ToolPart, encode, tool_part

# Below the limit of a stored message, with room for what encoding adds.
_LARGEST_PARTS = 900_000
_MOST_PARTS = 500
_SHOWN_TEXT = 100_000
_NOTE = "too large to be shown: the framework's own state has it"


def fit_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    if not parts:
        return ()
    if len(parts) <= _MOST_PARTS and len(encode(parts)) <= _LARGEST_PARTS:
        return tuple(parts)
    share = max(_LARGEST_PARTS // min(len(parts), _MOST_PARTS), 1_000)
    return tuple(part if len(encode([part])) <= share else _cut(part, share // 6) for part in parts[:_MOST_PARTS])


def _cut(part: Part, characters: int) -> Part:
    if isinstance(part, TextPart):
        return TextPart(f"{part.text[: min(characters, _SHOWN_TEXT)]}… [{len(part.text)} characters, cut here]")
    if isinstance(part, ToolPart):
        if part.is_answered:
            return tool_part(part.name, part.call_id, _NOTE, output=_NOTE)
        return tool_part(part.name, part.call_id, _NOTE)
    return TextPart(f"[{_NOTE}]")

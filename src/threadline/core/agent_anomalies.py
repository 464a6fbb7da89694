"""AnomalyCounter: what an agent did that it should not have, counted while its reply is folded.

They are for the log, so they hold ids and never a text. Texts and values are mended through here, so that mending
always leaves a note.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple, TypeAlias

from threadline.core import sanitize as mending

OddityKind: TypeAlias = Literal[
    "diverging-text",
    "mended-text",
    "unknown-call",
    "repeated-call",
    "repeated-id",
    "repeated-result",
    "late-input",
]


class Anomaly(NamedTuple):
    kind: OddityKind
    call_id: str | None = None


class AnomalyCounter(Counter[Anomaly]):
    """How often each was seen, in the order of the first time."""

    def note(self, kind: OddityKind, call_id: str | None = None) -> None:
        self[Anomaly(kind, call_id)] += 1

    def sanitize_text(self, text: str) -> str:
        mended = mending.sanitize_text(text)
        if mended is not text:
            self.note("mended-text")
        return mended

    def sanitize_json(self, value: Any, what: str) -> mending.SanitizedJson:
        mended = mending.sanitize_json(value, what)
        if mended.changed:
            self.note("mended-text")
        return mended

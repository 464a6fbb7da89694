"""Counts what an agent did wrong while its reply is folded: malformed text, unknown calls, repeated ids.

Anomalies are logged, so they contain ids and never text. Texts and values are sanitized through the counter, so that
each correction is counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple, TypeAlias

from threadline.core import sanitize

AnomalyKind: TypeAlias = Literal[
    "diverging-text",
    "sanitized-text",
    "unknown-call",
    "repeated-call",
    "repeated-id",
    "repeated-result",
    "late-input",
    "refused-file",
]


class Anomaly(NamedTuple):
    kind: AnomalyKind
    call_id: str | None = None


class AnomalyCounter(Counter[Anomaly]):
    """How often each anomaly occurred, in the order of its first occurrence."""

    def note(self, kind: AnomalyKind, call_id: str | None = None) -> None:
        self[Anomaly(kind, call_id)] += 1

    def sanitize_text(self, text: str) -> str:
        sanitized = sanitize.sanitize_text(text)
        if sanitized is not text:
            self.note("sanitized-text")
        return sanitized

    def sanitize_json(self, value: Any, what: str) -> sanitize.SanitizedJson:
        sanitized = sanitize.sanitize_json(value, what)
        if sanitized.changed:
            self.note("sanitized-text")
        return sanitized

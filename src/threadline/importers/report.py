"""What an import did with its source: what was unknown, shortened or refused, with counts."""

from __future__ import annotations

from collections import Counter

_MOST_FAULTS = 100


class SourceReport:
    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()
        """Kept as data parts, by kind."""
        self.skipped: Counter[str] = Counter()
        """Known and not part of a conversation, such as snapshots of files, by kind."""
        self.notes: Counter[str] = Counter()
        self.faults: list[str] = []
        """Each names the file and the place. What could not be listed is counted in `fault_count`."""
        self.fault_count = 0

    def refuse(self, where: str, reason: object) -> None:
        self.fault_count += 1
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(f"{where}: {reason}")

    def to_json(self) -> dict[str, object]:
        return {
            "unknown": dict(self.unknown),
            "skipped": dict(self.skipped),
            "notes": dict(self.notes),
            "faults": self.faults,
            "faultCount": self.fault_count,
        }

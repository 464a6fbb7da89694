"""Counters: what happened how often, for whoever watches the service. Names are constant phrases, never user data."""

from __future__ import annotations

from collections import Counter


class Counters:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, by: int = 1) -> None:
        self._counts[name] += by

    def read(self) -> dict[str, int]:
        return dict(self._counts)

"""Metrics: what happened how often, how long it took, and how things stand, for whoever watches the service.

Each use case asks for its own by name and keeps it; asking twice gives the same one. Counters and histograms are of
this process and begin with it. A gauge is read when someone looks. Values of labels are words of the house (a status, a
surface, a route's template), never an id and nothing that a user wrote; a metric that gets too many of them counts the
rest as `other`, so that a mistake costs a bounded amount of memory.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from threadline.core.errors import StoreFailed

log = logging.getLogger("threadline.metrics")

Labels: TypeAlias = tuple[str, ...]
Reading: TypeAlias = Mapping[Labels, float]
MOST_SERIES = 1_000
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Sample(NamedTuple):
    """One line: the metric's name with `suffix`, the labels by name, the value."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """Everything under one name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    samples: list[Sample]


class Counter:
    """Only grows."""

    def __init__(self, name: str, text: str, labels: Labels) -> None:
        self.name = name
        self._text = text
        self._labels = labels
        self._counts: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        known = _bounded(self._counts, labels)
        self._counts[known] = self._counts.get(known, 0) + by

    def value(self, *labels: str) -> float:
        return self._counts.get(labels, 0)

    async def family(self) -> Family:
        samples = [Sample("", _named(self._labels, labels), value) for labels, value in self._counts.items()]
        return Family(self.name, "counter", self._text, samples)


class Histogram:
    """How values spread, in seconds unless the name says otherwise."""

    def __init__(self, name: str, text: str, labels: Labels, bounds: tuple[float, ...]) -> None:
        self.name = name
        self._text = text
        self._labels = labels
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, *labels: str) -> None:
        known = _bounded(self._counts, labels)
        counts = self._counts.get(known)
        if counts is None:
            counts = self._counts[known] = [0] * (len(self._bounds) + 1)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[known] = self._sums.get(known, 0.0) + value

    async def family(self) -> Family:
        return Family(self.name, "histogram", self._text, list(self._samples()))

    def _samples(self) -> Iterator[Sample]:
        for labels, counts in self._counts.items():
            named = _named(self._labels, labels)
            below = 0
            for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
                below += count
                yield Sample("_bucket", (*named, ("le", _bound(bound))), below)
            yield Sample("_sum", named, self._sums[labels])
            yield Sample("_count", named, below)


class Gauge:
    """How something stands. Without `read` it is moved by `add`; with it, it is read when someone looks."""

    def __init__(self, name: str, text: str, labels: Labels, read: Callable[[], Awaitable[Reading]] | None) -> None:
        self.name = name
        self._text = text
        self._labels = labels
        self._read = read
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        known = _bounded(self._values, labels)
        self._values[known] = self._values.get(known, 0) + by

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    async def family(self) -> Family:
        """What cannot be read now has no value: a scrape is answered all the same."""
        values: Reading = self._values
        if self._read is not None:
            try:
                values = await self._read()
            except StoreFailed:
                log.warning("gauge not read", extra={"metric": self.name})
                values = {}
        samples = [Sample("", _named(self._labels, labels), value) for labels, value in values.items()]
        return Family(self.name, "gauge", self._text, samples)


Metric = TypeVar("Metric", Counter, Gauge, Histogram)


class Metrics:
    """Every metric of this process."""

    def __init__(self) -> None:
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}
        self._marks: tuple[tuple[str, str], ...] = ()

    def mark(self, label: str, value: str) -> None:
        """Puts a label on everything this process counts, where several processes are looked at under one address."""
        self._marks = (*self._marks, (label, value))

    def counter(self, name: str, text: str, labels: Labels = ()) -> Counter:
        """`name` begins with `threadline_` and ends with `_total`; `labels` are the names of its labels."""
        return self._keep(Counter(name, text, labels))

    def histogram(self, name: str, text: str, labels: Labels = (), *, bounds: tuple[float, ...] = SECONDS) -> Histogram:
        return self._keep(Histogram(name, text, labels, bounds))

    def gauge(
        self, name: str, text: str, labels: Labels = (), *, read: Callable[[], Awaitable[Reading]] | None = None
    ) -> Gauge:
        """`read` gives the values by the values of their labels: `{("slack",): 12.0}`, or `{(): 3}` without labels."""
        return self._keep(Gauge(name, text, labels, read))

    def _keep(self, made: Metric) -> Metric:
        found = self._metrics.setdefault(made.name, made)
        assert isinstance(found, type(made)), f"{made.name} is there as another kind of metric"
        return found

    def value(self, name: str, *labels: str) -> float:
        """Where a counter or a gauge that is not read stands; 0 for one that nobody has asked for."""
        found = self._metrics.get(name)
        return 0 if found is None or isinstance(found, Histogram) else found.value(*labels)

    async def families(self) -> list[Family]:
        found = [await metric.family() for _, metric in sorted(self._metrics.items())]
        return [_marked(family, self._marks) for family in found] if self._marks else found


def _bounded(known: Mapping[Labels, object], labels: Labels) -> Labels:
    if labels in known or len(known) < MOST_SERIES:
        return labels
    return ("other",) * len(labels)


def _marked(family: Family, marks: tuple[tuple[str, str], ...]) -> Family:
    return family._replace(samples=[sample._replace(labels=(*marks, *sample.labels)) for sample in family.samples])


def _named(names: Labels, values: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(zip(names, values, strict=True))


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)

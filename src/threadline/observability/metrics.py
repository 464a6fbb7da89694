"""Metrics: counters, histograms and gauges of this process, and those of others beside it if a source is given.

Code asks for its metrics by name; asking twice returns the same one. Counters and histograms start at zero with the
process. A gauge with `read` is read on each scrape. Label values are fixed words (a status, a surface, a route's
template), never ids or user input; a metric with too many of them counts the rest as `other`, so that a mistake uses a
bounded amount of memory.
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
    """One line of the exposition: `suffix` of the metric's name, labels, value."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """All samples of one metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    samples: list[Sample]


class Counter:
    """A value that only grows."""

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
    """The distribution of values, in seconds unless the name says otherwise."""

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
    """A current value: changed by `add`, or read on each scrape if `read` is given."""

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
        """A gauge that cannot be read has no samples, so that a scrape succeeds while the database is down."""
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
    """The metrics of this process."""

    def __init__(self) -> None:
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}
        self._common_labels: tuple[tuple[str, str], ...] = ()
        self._other_processes: Callable[[], Awaitable[list[Family]]] | None = None

    def add_processes(self, read: Callable[[], Awaitable[list[Family]]]) -> None:
        """Includes the metrics of other processes, which `read` returns. A label must tell all of them apart."""
        self._other_processes = read

    def add_common_label(self, label: str, value: str) -> None:
        """Adds a label to every sample of this process, to distinguish processes behind one address."""
        self._common_labels = (*self._common_labels, (label, value))

    def counter(self, name: str, text: str, labels: Labels = ()) -> Counter:
        """`name` starts with `threadline_` and ends with `_total`; `labels` are label names."""
        return self._register(Counter(name, text, labels))

    def histogram(self, name: str, text: str, labels: Labels = (), *, bounds: tuple[float, ...] = SECONDS) -> Histogram:
        return self._register(Histogram(name, text, labels, bounds))

    def gauge(
        self, name: str, text: str, labels: Labels = (), *, read: Callable[[], Awaitable[Reading]] | None = None
    ) -> Gauge:
        """`read` returns values by label values: `{("slack",): 12.0}`, or `{(): 3}` without labels."""
        return self._register(Gauge(name, text, labels, read))

    def _register(self, metric: Metric) -> Metric:
        found = self._metrics.setdefault(metric.name, metric)
        assert isinstance(found, type(metric)), f"{metric.name} is registered as another kind of metric"
        return found

    def value(self, name: str, *labels: str) -> float:
        """The value of a counter or of a gauge without `read`; 0 if it does not exist."""
        found = self._metrics.get(name)
        return 0 if found is None or isinstance(found, Histogram) else found.value(*labels)

    async def families(self) -> list[Family]:
        """Of this process and, with `add_processes`, of the others; each metric once, with the samples of all."""
        found = await self.own_families()
        if self._other_processes is not None:
            found += await self._other_processes()
        joined: dict[str, Family] = {}
        for family in found:
            known = joined.setdefault(family.name, family._replace(samples=[]))
            known.samples.extend(family.samples)
        return [joined[name] for name in sorted(joined)]

    async def own_families(self) -> list[Family]:
        found = [await metric.family() for _, metric in sorted(self._metrics.items())]
        return [_with_labels(family, self._common_labels) for family in found] if self._common_labels else found


def _bounded(known: Mapping[Labels, object], labels: Labels) -> Labels:
    if labels in known or len(known) < MOST_SERIES:
        return labels
    return ("other",) * len(labels)


def _with_labels(family: Family, common_labels: tuple[tuple[str, str], ...]) -> Family:
    return family._replace(
        samples=[sample._replace(labels=(*common_labels, *sample.labels)) for sample in family.samples]
    )


def _named(names: Labels, values: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(zip(names, values, strict=True))


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)

"""Series: plain numbers that are counted on the hot path, and poured into prometheus_client from time to time.

In prometheus_client an `inc` costs 0.5 µs and an `observe` 1.3 µs, more where processes share their metrics; here
adding costs 0.2 to 0.3 µs, for one value or many. Poured counts can also be taken, for the history (history.py), so
that the hot path counts each number only once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from math import inf

from prometheus_client import CollectorRegistry, Counter, Histogram

Labels = tuple[str, ...]


class Count:
    """A counter."""

    def __init__(self, registry: CollectorRegistry, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self._counter = Counter(name, help, labels, registry=registry)
        self._numbers: dict[Labels, int] = defaultdict(int)
        self._poured: dict[Labels, int] = defaultdict(int)

    def add(self, *labels: str, n: int = 1) -> None:
        """Count `n` more."""
        self._numbers[labels] += n

    def pour(self) -> None:
        for labels, number in self._numbers.items():
            (self._counter.labels(*labels) if labels else self._counter).inc(number)
            self._poured[labels] += number
        self._numbers.clear()

    def take(self) -> dict[Labels, int]:
        """The counts since the last call."""
        self.pour()
        taken, self._poured = self._poured, defaultdict(int)
        return taken


class Spread:
    """A histogram."""

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        help: str,
        bounds: Sequence[float],
        labels: Sequence[str] = (),
    ) -> None:
        self._histogram = Histogram(name, help, labels, buckets=bounds, registry=registry)
        self._bounds = (*bounds, inf)
        self._numbers: dict[Labels, list[float]] = {}  # the count of each bucket, then the sum
        self._poured: dict[Labels, list[int]] = {}  # the count of each bucket

    def add(self, value: float, *labels: str, n: int = 1) -> None:
        """Count `n` observations of this value."""
        try:  # like `_of`, without the call
            numbers = self._numbers[labels]
        except KeyError:
            numbers = self._of(labels)
        numbers[bisect_left(self._bounds, value)] += n
        numbers[-1] += value * n

    def add_all(self, values: Sequence[float], *labels: str) -> None:
        """Count one observation of each value."""
        numbers, bounds = self._of(labels), self._bounds
        for value in values:
            numbers[bisect_left(bounds, value)] += 1
        numbers[-1] += sum(values)

    def _of(self, labels: Labels) -> list[float]:
        try:
            return self._numbers[labels]
        except KeyError:
            return self._numbers.setdefault(labels, [0.0] * (len(self._bounds) + 1))

    def pour(self) -> None:
        for labels, (*numbers, total) in self._numbers.items():
            histogram = self._histogram.labels(*labels) if labels else self._histogram
            # `observe` accepts one value at a time; this code does the same for all values at once.
            histogram._sum.inc(total)
            for bucket, number in zip(histogram._buckets, numbers, strict=True):
                if number:
                    bucket.inc(number)
            before = self._poured.get(labels) or [0] * len(numbers)
            self._poured[labels] = [old + int(number) for old, number in zip(before, numbers, strict=True)]
        self._numbers.clear()

    def take(self) -> dict[Labels, list[int]]:
        """How many values were counted in each bucket since the last call."""
        self.pour()
        taken, self._poured = self._poured, {}
        return taken

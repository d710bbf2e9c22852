"""How long things took: exact sums, extremes and quantiles in bounded memory, the same in any order of
arrival.
"""

from __future__ import annotations

import math

from flightlog.analyze.distribution import exact_sum, mean_of, place_of, quantile

EXACT = 10_000
"""So many values are kept as they are; beyond, counts in bins that grow by 1 %."""
SAMPLE = 100
_BLOCK = 256
_STEP = math.log(1.01)
_NOTHING = -(1 << 30)
"""The bin of values that have no logarithm."""


class ExactSum:
    """A sum that is rounded once, however many values there are: what `math.fsum` of all of them gives."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[float] = []

    def add(self, value: float) -> None:
        """Put a value in."""
        parts = self._parts
        parts.append(value)
        if len(parts) >= _BLOCK:
            self._parts = _folded(parts)

    def value(self) -> float:
        """The sum; infinite where it leaves the range of floats."""
        return exact_sum(self._parts)


def _folded(parts: list[float]) -> list[float]:
    """Few numbers with the same exact sum: the rounded sum, what rounding left, and so on until nothing is
    left.
    """
    found: list[float] = []
    while True:
        rest = exact_sum([*parts, *(-part for part in found)])
        if not math.isfinite(rest):
            return [math.inf]
        if rest == 0.0:
            return found
        found.append(rest)


class Durations:
    """Durations of things of one name, in seconds."""

    __slots__ = ("_bins", "_max", "_min", "_settled", "_sum", "_values", "count")

    def __init__(self) -> None:
        self.count = 0
        self._values: list[float] = []
        self._bins: dict[int, int] = {}
        self._sum = ExactSum()
        self._min, self._max = math.inf, -math.inf
        self._settled: tuple[int, float] = (0, 0.0)

    def add(self, value: float) -> None:
        """Put a value in."""
        self.count += 1
        if not self._bins:
            self._values.append(value)
            if self.count <= EXACT:
                return
            for each in self._values:
                self._count(each)
            self._values = []
        else:
            self._count(value)

    def _count(self, value: float) -> None:
        where = math.floor(math.log(value) / _STEP) if value > 0 else _NOTHING
        self._bins[where] = self._bins.get(where, 0) + 1
        self._min, self._max = min(self._min, value), max(self._max, value)
        self._sum.add(value)

    @property
    def total(self) -> float:
        """Their sum."""
        if self._settled[0] != self.count:
            self._values.sort()  # cheap where little is new
            self._settled = self.count, self._sum.value() if self._bins else exact_sum(self._values)
        return self._settled[1]

    @property
    def min(self) -> float:
        """The shortest; there must be one."""
        return self._min if self._bins else min(self._values)

    @property
    def max(self) -> float:
        """The longest; there must be one."""
        return self._max if self._bins else max(self._values)

    @property
    def mean(self) -> float | None:
        """Null where there is none."""
        return mean_of(self.count, self.total, self.min, self.max) if self.count else None

    def quantile(self, q: float) -> float | None:
        """Interpolated as everywhere; within 1 % where there are more than `EXACT` values, null where there
        is none.
        """
        if not self.count:
            return None
        if not self._bins:
            self._values.sort()  # cheap where little is new
            return quantile(self._values, q)
        place, passed = place_of(q, self.count).below + 1, 0
        for where in sorted(self._bins):
            passed += self._bins[where]
            if passed >= place:
                return self._within(where)
        return self.max

    def _within(self, where: int) -> float:
        value = 0.0 if where == _NOTHING else math.exp((where + 0.5) * _STEP)
        return min(max(value, self.min), self.max)

    def sample(self) -> list[float]:
        """All values where they are few, else as many as stand for them."""
        if not self._bins:
            self._values.sort()
            if self.count <= SAMPLE:
                return self._values
            return [self._values[(2 * rank + 1) * self.count // (2 * SAMPLE)] for rank in range(SAMPLE)]
        wanted = [(2 * rank + 1) * self.count // (2 * SAMPLE) for rank in range(SAMPLE)]
        found: list[float] = []
        passed = 0
        for where in sorted(self._bins):
            passed += self._bins[where]
            while len(found) < SAMPLE and wanted[len(found)] < passed:
                found.append(self._within(where))
        return found

"""Labels whose number is bounded whatever a run is called to hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from flightlog.export.prometheus.figures import BUCKETS_S, OTHER, Durations

K = TypeVar("K", bound=Hashable)

MAX_CHARS = 100
"""A longer label is cut."""
WEIGHED = 1000
"""How many names are weighed against each other when labels are given out for the first time."""


def label(text: str | None) -> str:
    """A text as a label: bounded, and nothing that UTF-8 cannot hold. The exposition escapes the rest."""
    cut = (text or "")[:MAX_CHARS]
    return cut.encode("utf-8", "replace").decode()


class HistogramTally:
    """Counts durations into the buckets."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum_s = 0.0

    @property
    def count(self) -> int:
        """How many were added."""
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        """Count one; what is no time, as NaN, is passed over."""
        if seconds >= 0:
            place = next((i for i, bound in enumerate(BUCKETS_S) if seconds <= bound), len(BUCKETS_S))
            self._counts[place] += 1
            self._sum_s += seconds

    def take(self, other: HistogramTally) -> None:
        """Count what another has counted."""
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self._sum_s += other._sum_s

    def durations(self) -> Durations:
        """The histogram."""
        total, at_most = 0, []
        for number in self._counts[:-1]:
            total += number
            at_most.append(total)
        return Durations(at_most=tuple(at_most), count=self.count, sum_s=self._sum_s)


class Histograms:
    """A histogram a name, for `names` names at most; all others share `OTHER`.

    What is there when `choose` is first called is weighed: the names with most tasks have a label of their
    own. It stays theirs, and names that come later have what is left: a count under a label never goes down,
    as it would if the most frequent were chosen anew each time.
    """

    def __init__(self, names: int) -> None:
        self._room = names
        self._chosen = False
        self._tallies: dict[str, HistogramTally] = {}

    def add(self, name: str, seconds: float) -> None:
        """Count one duration."""
        name = label(name)
        tally = self._tallies.get(name)
        if tally is None:
            full = len(self._own()) >= (self._room if self._chosen else WEIGHED)
            name = OTHER if full else name
            tally = self._tallies.setdefault(name, HistogramTally())
        tally.add(seconds)

    def choose(self) -> dict[str, Durations]:
        """The histograms by label, in order of the names, `OTHER` last."""
        if not self._chosen:
            self._chosen = True
            heaviest = sorted(self._own(), key=lambda name: (-self._tallies[name].count, name))
            for name in heaviest[self._room :]:
                self._tallies.setdefault(OTHER, HistogramTally()).take(self._tallies.pop(name))
        return {
            name: self._tallies[name].durations()
            for name in sorted(self._tallies, key=lambda name: (name == OTHER, name))
        }

    def _own(self) -> list[str]:
        return [name for name in self._tallies if name != OTHER]


class Counts(Generic[K]):
    """Counts by key, for `keys` keys at most, first come first served; all others count under `other`."""

    def __init__(self, keys: int, other: K) -> None:
        self._room, self._other = keys, other
        self.counts: dict[K, int] = {}

    def add(self, key: K) -> None:
        """Count one."""
        if key not in self.counts and len(self.counts) >= self._room:
            key = self._other
        self.counts[key] = self.counts.get(key, 0) + 1

"""The metrics of one run for Prometheus: counters, histograms and gauges, with a bounded number of labels."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

OTHER = "other"
"""The label of everything beyond the names that have one of their own."""
BUCKETS_S = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Upper bounds of the histogram of execution times, in seconds; the last bucket has none."""
TASK_EVENTS = ("submitted", "started", "completed", "failed", "retried", "cancelled")
TASK_STATES = ("pending", "running", "completed", "failed", "cancelled")
CACHE_RESULTS = ("hit", "miss", "bypass")


class Durations(Struct, frozen=True, kw_only=True):
    """A histogram: how many took at most as long as each bound, how many at all, and their sum in seconds."""

    at_most: tuple[int, ...]
    count: int
    sum_s: float


class Gauges(Struct, frozen=True, kw_only=True):
    """The newest sample of a node or of a GPU; None where it does not say. Shares are 0 to 1."""

    host: str
    gpu: str | None
    """Index of the GPU on its host, with the instance of a partitioned one; None for the node itself."""
    gpu_name: str | None
    at_s: float
    """When it was taken, Unix seconds."""
    values: dict[str, float]
    """By the name of the metric, less its `flightlog_node_` or `flightlog_gpu_`."""


class RunFigures(Struct, frozen=True, kw_only=True):
    """One run. Counts are from its events, each taken once; what cannot be known is None and is not
    exported.
    """

    run_id: str
    project: str
    status: str
    target: str | None
    provider: str | None
    host: str
    version: str | None
    started_s: float | None
    """Start and, where it is over, end: Unix seconds."""
    ended_s: float | None
    duration_s: float | None
    heard_s: float | None
    """Its last heartbeat, Unix seconds."""
    task_events: dict[str, int]
    """By `TASK_EVENTS`: attempts that started, failed or were retried, so a task may count more than once."""
    tasks: dict[str, int]
    """By `TASK_STATES`: where the tasks are now."""
    durations: dict[str, Durations]
    """Execution of completed tasks by name; a bounded number of names, and `OTHER`."""
    workers: int
    """Up now."""
    workers_seen: int
    workers_lost: int
    failures: dict[tuple[str, str], int]
    """By scope and class, as they stand in the stream `failures`; a bounded number, and `OTHER`."""
    cache: dict[str, int]
    saved_s: float
    cost: dict[str, float]
    """By currency."""
    gauges: tuple[Gauges, ...]
    """Of nodes, then of GPUs."""
    lines: int
    lost: int
    recorder_cpu_s: float | None
    """None where one of the recording processes has not noted it, as one that was killed."""
    problems: int
    """Sentences there would be on damaged documents and lines that could not be read."""


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

"""What a comparison says: two sides, and every difference between them. Null is unknown, never nothing.

Figures of a side that is a group of runs are means over its runs, peaks are the highest, and counts of tasks
are of all its runs. Every ratio is after over before, every difference after less before.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from flightlog.analyze.limits import CompareLimits
from flightlog.core.displayed import DisplayedResult

Verdict = Literal["slower", "faster", "no change", "inconclusive"]


class Interval(Struct, frozen=True, kw_only=True):
    """A ratio, after over before, with its confidence interval; both bounds are null where there are too few
    values.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """How likely at least so large a change is where nothing changed, for this ratio alone."""


class ComparedRun(Struct, frozen=True, kw_only=True):
    """One run of a side."""

    run_id: str
    project: str
    status: str
    start_time: str
    duration_s: float | None


class Side(Struct, frozen=True, kw_only=True):
    """One of the two: as it was asked for, and the runs that are meant, the newest first."""

    asked: str
    runs: list[ComparedRun]


class Change(Struct, frozen=True, kw_only=True):
    """One figure on both sides."""

    before: float | None
    after: float | None
    difference: float | None
    ratio: float | None
    """Null where before is 0 or either is unknown."""
    interval: Interval | None = None
    """Where both sides have several runs, or one has three: what runs alone may differ by."""

    @classmethod
    def of(cls, before: float | None, after: float | None, *, interval: Interval | None = None) -> Change:
        """The change from one figure to another."""
        difference = ratio = None
        if before is not None and after is not None:
            difference, ratio = after - before, after / before if before else None
        return cls(before=before, after=after, difference=difference, ratio=ratio, interval=interval)


class Spread(Struct, frozen=True, kw_only=True):
    """Durations on one side, in seconds."""

    count: int
    total_s: float
    mean_s: float
    p50_s: float
    p95_s: float
    max_s: float


class DurationChange(Struct, frozen=True, kw_only=True):
    """The durations of one name."""

    kind: Literal["task", "span"]
    name: str
    cached: bool
    """Tasks whose results all came from a cache, which are compared among themselves."""
    verdict: Verdict
    by: Literal["typical", "mean"] | None
    """Which ratio the verdict rests on; null where nothing stands out."""
    before: Spread | None
    after: Spread | None
    pairs: int | None
    """Tasks matched by arguments: the ratios are of these alone. Null: all tasks of the name, as they are."""
    shared_arguments: float | None
    """The share of the task's sets of arguments that both sides have, 0 to 1; null where nobody recorded
    them."""
    typical: Interval | None
    """The ratio of a typical task; far outliers count little."""
    mean: Interval | None
    """The ratio of means; a few slow tasks count in full."""
    p95: Interval | None
    p95_stands_out: bool
    """Whether the p95 changed by more than noise, among all names."""

    @property
    def other_arguments(self) -> bool:
        """Whether it was called with other arguments, mostly: then a ratio may tell of other work, not of
        speed.
        """
        return (
            self.pairs is None
            and self.shared_arguments is not None
            and self.shared_arguments < CompareLimits.min_shared_arguments
        )


class NameCount(Struct, frozen=True, kw_only=True):
    """A name that only one side has, and how many there are."""

    kind: Literal["task", "span"]
    name: str
    count: int


class ArgumentSets(Struct, frozen=True, kw_only=True):
    """The sets of arguments of one task that both sides have, and those only one has, with a few of them."""

    name: str
    both: int
    appeared: int
    vanished: int
    appeared_examples: list[Any]
    vanished_examples: list[Any]


class Share(Struct, frozen=True, kw_only=True):
    """One reason why the wall time differs, in seconds of wall time."""

    what: str
    """`number of tasks`, `duration of tasks`, `cache`, `retries`, `queue`, `idle`, `startup`, `workers`, …"""
    seconds: float
    detail: str
    """The same in words, with its figures."""


class WallExplained(Struct, frozen=True, kw_only=True):
    """Why the wall time differs: the shares and `not_explained_s` add up to `difference_s`."""

    basis: Literal["workers", "wall"]
    """Worker time, scaled by the workers there were; or, without workers, the time on the clock."""
    difference_s: float
    shares: list[Share]
    """The largest first."""
    not_explained_s: float


class ResourceChange(Struct, frozen=True, kw_only=True):
    """What one task name used, or the whole run where `name` is null."""

    name: str | None
    peak_rss_bytes: Change
    cpu_s: Change
    """CPU time of a task, on average; of the whole run, in all."""
    read_bytes: Change
    write_bytes: Change


class FailureChange(Struct, frozen=True, kw_only=True):
    """Failures with one cause; `appeared` and `vanished` if only one side has them."""

    state: Literal["appeared", "vanished", "both"]
    fingerprint: str | None
    error_type: str | None
    message: str | None
    tasks: list[str]
    before: int
    after: int


class CacheChange(Struct, frozen=True, kw_only=True):
    """Cache lookups."""

    lookups: Change
    hits: Change
    hit_rate: Change
    saved_s: Change


class EnvironmentChange(Struct, frozen=True, kw_only=True):
    """One thing that differs around the runs; several values of one side stand side by side."""

    what: str
    """`git`, `package`, `python`, `host`, `manifest`, `function`, `settings`, …"""
    name: str
    before: str | None
    after: str | None


class Comparison(DisplayedResult, Struct, frozen=True, kw_only=True):
    """What changed from one side to the other: the JSON of `flightlog compare`."""

    before: Side
    after: Side
    wall_s: Change
    worker_s: Change
    explained: WallExplained | None
    """Null where a side's wall time is unknown, or nothing was recorded to explain it with."""
    tasks: dict[str, Change]
    """Counts a run: `submitted`, `completed`, `failed`, `cancelled`, `retried`."""
    durations: list[DurationChange]
    """Changes that stand out first, then by the time they take."""
    appeared: list[NameCount]
    vanished: list[NameCount]
    arguments: list[ArgumentSets]
    """Of names whose sets of arguments differ."""
    resources: list[ResourceChange]
    """The whole run first, then by task."""
    failures: list[FailureChange]
    cache: CacheChange
    cost: Change
    currency: str | None
    """Null where there is no cost, or the sides differ in it: then `cost` is unknown."""
    environment: list[EnvironmentChange]
    notes: list[str]
    """What to bear in mind: runs that did not complete, lines lost, too few runs to know their noise."""
    lost: tuple[dict[str, int], dict[str, int]]
    """Lines of tasks and spans that each side is known to have lost, where they are more than a hundredth of
    their stream. What those recorded is not compared: a loss is no change."""

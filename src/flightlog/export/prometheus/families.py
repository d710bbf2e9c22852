"""The metrics of runs: counters, histograms and gauges with a bounded number of labels, and their Prometheus
metric families, named by Prometheus's conventions (base units, `_total` for counters).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Generic, TypeVar

from msgspec import Struct
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from flightlog.store.layout import ENDED

RUN = ("project", "run_id")
"""The labels of everything that is of one run."""
STATUSES = ("running", *sorted(ENDED), "unknown")
TASK_EVENTS = {
    "submitted": "Tasks handed over for execution.",
    "started": "Attempts started by a worker.",
    "completed": "Tasks that ran to their end.",
    "failed": "Attempts that ended with an error, retried ones included.",
    "retried": "Attempts that failed and were retried.",
    "cancelled": "Cancelled tasks.",
}
NODE = {
    "cpu_ratio": ("cpu_percent", "Share of the node's CPUs in use, 0 to 1, at the newest sample."),
    "cpus": ("cpus", "CPUs of the node."),
    "load1": ("load_1m", "Load average of the node over one minute."),
    "memory_used_bytes": ("memory_used_bytes", "Memory in use on the node, reclaimable cache not counted."),
    "memory_size_bytes": ("memory_total_bytes", "Memory of the node."),
    "swap_used_bytes": ("swap_used_bytes", "Swap in use on the node."),
    "disk_read_bytes_per_second": ("disk_read_bytes_per_s", "Read from the node's storage."),
    "disk_written_bytes_per_second": ("disk_write_bytes_per_s", "Written to the node's storage."),
    "network_received_bytes_per_second": (
        "net_recv_bytes_per_s",
        "Received by the node, loopback not counted.",
    ),
    "network_sent_bytes_per_second": ("net_sent_bytes_per_s", "Sent by the node, loopback not counted."),
}
GPU = {
    "utilization_ratio": ("gpu_percent", "Share of time that a kernel ran on the GPU, 0 to 1."),
    "memory_used_bytes": ("gpu_memory_used_bytes", "Memory of the GPU in use by everyone."),
    "memory_size_bytes": ("gpu_memory_total_bytes", "Memory of the GPU."),
    "process_memory_bytes": (
        "gpu_process_memory_bytes",
        "Memory of the GPU in use by the run's own processes.",
    ),
    "power_watts": ("gpu_power_w", "Power drawn by the GPU."),
    "temperature_celsius": ("gpu_temperature_c", "Temperature of the GPU."),
}
"""Metric name without its prefix: the sample's field, and what it means; a ratio is a hundredth of the
field."""
_GAUGES = {
    "run_start_time_seconds": ("started_s", "When the run started, in Unix seconds."),
    "run_end_time_seconds": (
        "ended_s",
        "When the run ended, or its last heartbeat, in Unix seconds; none while it runs.",
    ),
    "run_duration_seconds": ("duration_s", "Wall time of the run, so far while it is running."),
    "run_heartbeat_time_seconds": ("heard_s", "Last heartbeat of the run's recorder, in Unix seconds."),
    "run_problems": ("problems", "Documents of the run that are damaged, and lines that hold no event."),
    "workers": ("workers", "Workers that are up now."),
}
_COUNTERS = {
    "workers_seen": ("workers_seen", "Workers that there have been."),
    "workers_lost": ("workers_lost", "Workers that exited unexpectedly."),
    "cache_saved_seconds": ("saved_s", "Time that reused results had taken to compute."),
    "recorder_lines": ("lines", "Events that the run's recorders have numbered."),
    "recorder_lost_lines": ("lost", "Events that could not be written."),
    "recorder_cpu_seconds": ("recorder_cpu_s", "CPU time of the recorders' own threads."),
}
"""Metric name without its prefix: the figure of the run, and what it means."""


def families(runs: Sequence[RunFigures], *, now_of_ended: bool = False) -> Iterator[Metric]:
    """The metrics of these runs. Gauges of nodes and GPUs are included for running runs, and for others with
    `now_of_ended`. A family without any known value is left out.
    """
    places = [run for run in runs if run.status == "running" or now_of_ended]
    return (family for family in chain(_about_runs(runs), _about_places(places)) if family.samples)


def _about_runs(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    info = InfoMetricFamily("flightlog_run", "What a run is; the value is always 1.", labels=RUN)
    for run in runs:
        known = {"target": run.target, "provider": run.provider, "host": run.host, "version": run.version}
        info.add_metric(_of(run), {name: label(value) for name, value in known.items()})
    yield info
    for kind, figures in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for name, (field, help_) in figures.items():
            yield _family(kind, name, help_, ((_of(run), getattr(run, field)) for run in runs))
    yield from _labelled(runs)
    for event, help_ in TASK_EVENTS.items():
        rows = ((_of(run), run.task_events[event]) for run in runs)
        yield _family(CounterMetricFamily, f"tasks_{event}", help_, rows)
    yield _durations(runs)


def _of(run: RunFigures) -> list[str]:
    return [run.project, run.run_id]


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    help_: str,
    rows: Iterable[tuple[list[str], float | None]],
    labels: Sequence[str] = (),
) -> Metric:
    """A family of metrics; unknown values are left out."""
    family = kind(f"flightlog_{name}", help_, labels=[*RUN, *labels])
    for values, number in rows:
        if number is not None:
            family.add_metric(values, float(number))
    return family


def _labelled(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    """The figures that have labels of their own."""
    yield _family(
        GaugeMetricFamily,
        "run_status",
        "1 for the status that a run has, 0 for the others.",
        (
            ([*_of(run), status], run.status == status)
            for run in runs
            for status in STATUSES
            if status != "unknown" or run.status == "unknown"
        ),
        ["status"],
    )
    yield _family(
        GaugeMetricFamily,
        "tasks",
        "Tasks by current state; failed: without another retry.",
        (([*_of(run), state], run.tasks[state]) for run in runs for state in TASK_STATES),
        ["state"],
    )
    yield _family(
        CounterMetricFamily,
        "failures",
        "Failures on record, by what failed and the class of the error.",
        (([*_of(run), *key], number) for run in runs for key, number in sorted(run.failures.items())),
        ["scope", "error_type"],
    )
    yield _family(
        CounterMetricFamily,
        "cache_lookups",
        "Cache lookups; bypass means that the cache was off.",
        (
            ([*_of(run), result], number)
            for run in runs
            if any(run.cache.values())
            for result, number in run.cache.items()
        ),
        ["result"],
    )
    yield _family(
        GaugeMetricFamily,
        "cost",
        "Estimated cost of the run so far, in units of the currency.",
        (([*_of(run), currency], amount) for run in runs for currency, amount in run.cost.items()),
        ["currency"],
    )


def _durations(runs: Sequence[RunFigures]) -> Metric:
    histogram = HistogramMetricFamily(
        "flightlog_task_duration_seconds",
        "Execution time of completed tasks, queueing not counted, by name of the task.",
        labels=[*RUN, "task"],
    )
    bounds = [*map(floatToGoString, BUCKETS_S), "+Inf"]
    for run in runs:
        for task, found in run.durations.items():
            counts = [float(count) for count in (*found.at_most, found.count)]
            buckets = list(zip(bounds, counts, strict=True))
            histogram.add_metric([*_of(run), task], buckets, found.sum_s)
    return histogram


def _about_places(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    for prefix, figures, labels in (("node", NODE, ["host"]), ("gpu", GPU, ["host", "gpu", "gpu_name"])):
        for name, (_, help_) in figures.items():
            rows = (
                ([*_of(run), one.host, one.gpu or "", one.gpu_name or ""][: 2 + len(labels)], value)
                for run in runs
                for one in run.gauges
                if (one.gpu is not None) == (prefix == "gpu") and (value := one.values.get(name)) is not None
            )
            yield _family(GaugeMetricFamily, f"{prefix}_{name}", help_, rows, labels)


OTHER = "other"
"""The label of everything beyond the names that have one of their own."""
BUCKETS_S = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Upper bounds of the histogram of execution times, in seconds; the last bucket has none."""
TASK_STATES = ("pending", "running", "completed", "failed", "cancelled")


class Durations(Struct, frozen=True, kw_only=True):
    """A histogram: how many took at most as long as each bound, how many at all, and their sum in seconds."""

    at_most: tuple[int, ...]
    count: int
    sum_s: float


class HostGauges(Struct, frozen=True, kw_only=True):
    """The newest sample of a node or of a GPU; None where it does not say. Shares are 0 to 1."""

    host: str
    gpu: str | None
    """Index of the GPU on its host, with the instance of a partitioned one; None for the node itself."""
    gpu_name: str | None
    values: dict[str, float]
    """By the name of the metric, less its `flightlog_node_` or `flightlog_gpu_`."""


class RunFigures(Struct, frozen=True, kw_only=True):
    """The metrics of one run. Counts are from its events, each counted once; None is unknown and is not
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
    """Failures by scope and error type; a bounded number, and `OTHER`."""
    cache: dict[str, int]
    saved_s: float
    cost: dict[str, float]
    """By currency."""
    gauges: tuple[HostGauges, ...]
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
        """Count one duration; NaN and other invalid values are ignored."""
        if seconds >= 0:
            self._counts[bisect_left(BUCKETS_S, seconds)] += 1
            self._sum_s += seconds

    def take(self, other: HistogramTally) -> None:
        """Count what another has counted."""
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self._sum_s += other._sum_s

    def durations(self) -> Durations:
        """The histogram."""
        *at_most, count = accumulate(self._counts)
        return Durations(at_most=tuple(at_most), count=count, sum_s=self._sum_s)


class Histograms:
    """One histogram per name, for at most `names` names; all others share `OTHER`.

    The first `choose` gives labels to the names with the most tasks, for good; later names get the remaining
    labels. So a count under a label never decreases, as it would if the most frequent names were chosen anew.
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


class BoundedCounts(Generic[K]):
    """Counts by key, for `keys` keys at most, first come first served; all others count under `other`."""

    def __init__(self, keys: int, other: K) -> None:
        self._room, self._other = keys, other
        self.counts: dict[K, int] = {}

    def add(self, key: K) -> None:
        """Count one."""
        if key not in self.counts and len(self.counts) >= self._room:
            key = self._other
        self.counts[key] = self.counts.get(key, 0) + 1

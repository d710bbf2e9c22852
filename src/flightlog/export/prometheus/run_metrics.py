"""The metrics of runs: declared once, read from a run as it goes on, with a bounded number of labels.

They are named by Prometheus's conventions (base units, `_total` for counters).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
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

from flightlog.analyze.live.follow import Streams
from flightlog.analyze.live.state import LiveTotals
from flightlog.analyze.report.summary import overhead
from flightlog.core.time import SECOND, moment
from flightlog.events import (
    CacheLookup,
    Failure,
    ResourceSample,
    TaskCompleted,
    TaskEvent,
    WorkerLost,
    kind_of,
)
from flightlog.export.limits import PrometheusLimits
from flightlog.store.layout import ENDED
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.read.lines import AnyEvent
from flightlog.store.run import Run

RUN = ("project", "run_id")
"""The labels of everything that is of one run."""
STATUSES = ("running", *sorted(ENDED), "unknown")
TASK_STATES = ("pending", "running", "completed", "failed", "cancelled")
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
_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily
_Declared = Mapping[str, tuple[type[GaugeMetricFamily | CounterMetricFamily], str, tuple[str, ...]]]
"""Metric name without its prefix: its kind, what it means, and its labels beside those of the run."""
_OF_RUNS: _Declared = {
    "run_start_time_seconds": (_GAUGE, "When the run started, in Unix seconds.", ()),
    "run_end_time_seconds": (
        _GAUGE,
        "When the run ended, or its last heartbeat, in Unix seconds; none while it runs.",
        (),
    ),
    "run_duration_seconds": (_GAUGE, "Wall time of the run, so far while it is running.", ()),
    "run_heartbeat_time_seconds": (_GAUGE, "Last heartbeat of the run's recorder, in Unix seconds.", ()),
    "run_problems": (_GAUGE, "Documents of the run that are damaged, and lines that hold no event.", ()),
    "workers": (_GAUGE, "Workers that are up now.", ()),
    "workers_seen": (_COUNTER, "Workers that there have been.", ()),
    "workers_lost": (_COUNTER, "Workers that exited unexpectedly.", ()),
    "cache_saved_seconds": (_COUNTER, "Time that reused results had taken to compute.", ()),
    "recorder_lines": (_COUNTER, "Events that the run's recorders have numbered.", ()),
    "recorder_lost_lines": (_COUNTER, "Events that could not be written.", ()),
    "recorder_cpu_seconds": (_COUNTER, "CPU time of the recorders' own threads.", ()),
    "run_status": (_GAUGE, "1 for the status that a run has, 0 for the others.", ("status",)),
    "tasks": (_GAUGE, "Tasks by current state; failed: without another retry.", ("state",)),
    "failures": (
        _COUNTER,
        "Failures on record, by what failed and the class of the error.",
        ("scope", "error_type"),
    ),
    "cache_lookups": (_COUNTER, "Cache lookups; bypass means that the cache was off.", ("result",)),
    "cost": (_GAUGE, "Estimated cost of the run so far, in units of the currency.", ("currency",)),
    **{f"tasks_{event}": (_COUNTER, help_, ()) for event, help_ in TASK_EVENTS.items()},
}
_OF_PLACES: _Declared = {
    **{f"node_{name}": (_GAUGE, help_, ("host",)) for name, (_, help_) in NODE.items()},
    **{f"gpu_{name}": (_GAUGE, help_, ("host", "gpu", "gpu_name")) for name, (_, help_) in GPU.items()},
}
BUCKETS_S = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Upper bounds of the histogram of execution times, in seconds; the last bucket has none."""
OTHER = "other"
"""The label of everything beyond the names that have one of their own."""


WEIGHED = 1000
"""How many names are weighed against each other when labels are given out for the first time."""
STREAMS = ("tasks", "workers", "resources", "failures", "cache", "cost", "jobs")
K = TypeVar("K", bound=Hashable)


class RunMetrics(Struct, frozen=True, kw_only=True):
    """The metrics of one run. Counts are from its events, each counted once; None is unknown and is not
    exported.
    """

    run_id: str
    project: str
    status: str
    about: dict[str, str]
    """The labels that say what the run is."""
    values: dict[str, float | dict[tuple[str, ...], float] | None]
    """By the name of the metric, less its `flightlog_`: its value, or its values by their own labels. Of
    labels there is a bounded number, and `OTHER`."""
    durations: dict[str, HistogramTally]
    """Execution of completed tasks by name; a bounded number of names, and `OTHER`."""

    @property
    def labels(self) -> list[str]:
        """Of everything that is of this run."""
        return [self.project, self.run_id]


def families(runs: Sequence[RunMetrics], *, now_of_ended: bool = False) -> Iterator[Metric]:
    """The metrics of these runs. Gauges of nodes and GPUs are included for running runs, and for others with
    `now_of_ended`. A family without any known value is left out.
    """
    info = InfoMetricFamily("flightlog_run", "What a run is; the value is always 1.", labels=RUN)
    for run in runs:
        info.add_metric(run.labels, run.about)
    places = [run for run in runs if run.status == "running" or now_of_ended]
    found = chain([info], _families(_OF_RUNS, runs), [_durations(runs)], _families(_OF_PLACES, places))
    return (family for family in found if family.samples)


def _families(declared: _Declared, runs: Sequence[RunMetrics]) -> Iterator[Metric]:
    for name, (kind, help_, labels) in declared.items():
        family = kind(f"flightlog_{name}", help_, labels=[*RUN, *labels])
        for run in runs:
            found = run.values.get(name)
            for values, number in found.items() if isinstance(found, dict) else [((), found)]:
                if number is not None:
                    family.add_metric([*run.labels, *values], float(number))
        yield family


def _durations(runs: Sequence[RunMetrics]) -> Metric:
    histogram = HistogramMetricFamily(
        "flightlog_task_duration_seconds",
        "Execution time of completed tasks, queueing not counted, by name of the task.",
        labels=[*RUN, "task"],
    )
    bounds = [*map(floatToGoString, BUCKETS_S), "+Inf"]
    for run in runs:
        for task, found in run.durations.items():
            buckets = list(zip(bounds, map(float, found.at_most()), strict=True))
            histogram.add_metric([*run.labels, task], buckets, found.sum_s)
    return histogram


class RunWatch:
    """One run. Not thread-safe. Memory: as the live views (`LiveTotals`), whose counts these are.

    The first `look` reads the run's tasks, workers, samples, lookups, failures and costs; later ones only new
    lines. Spans are counted by their writers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._streams, self._totals = Streams(path, STREAMS), LiveTotals(path)
        self._durations = Histograms(PrometheusLimits.max_task_names)
        self._events: Counter[str] = Counter()
        self._failures: BoundedCounts[tuple[str, str]] = BoundedCounts(
            PrometheusLimits.max_failure_kinds, (OTHER, OTHER)
        )
        self._saved_s = 0.0

    def look(self, observer: Observer) -> RunMetrics:
        """The metrics as of now. Raises `OSError` where the folder cannot be read at all."""
        run = Run(self.path, observer=observer)
        status = run.status
        self._streams.new(self._taker, over=status != "running")
        return self._metrics(run, status, observer.now)

    def _taker(self, stream: str) -> Callable[[AnyEvent], None]:
        count, take = self._totals.taker(stream), self._take

        def both(event: AnyEvent) -> None:
            count(event)
            take(event)

        return both if stream in {"tasks", "failures", "cache"} else count

    def _take(self, event: AnyEvent) -> None:
        """What is counted for these metrics alone."""
        if isinstance(event, TaskEvent):
            self._events[kind_of(event)] += 1
            if isinstance(event, TaskCompleted) and event.duration_s is not None:
                self._durations.add(event.task, event.duration_s)
        elif isinstance(event, Failure):
            self._failures.add((event.scope, label(event.error_type or "unknown")))
        elif isinstance(event, CacheLookup) and event.result == "hit" and event.saved_s is not None:
            self._saved_s += max(0.0, event.saved_s)

    def _metrics(self, run: Run, status: str, now: float) -> RunMetrics:
        info, writers, found = run.info, run.writers(), self._totals
        over = status != "running"
        ended = unix_time(info.end_time or info.heartbeat) if over else None
        started = unix_time(info.start_time)
        lived = None if started is None or ended is None else max(0.0, ended - started)
        tasks = {**found.tasks.names.totals(), "pending": found.tasks.waiting}
        until = round(now * SECOND) if ended is None else round(ended * SECOND)
        about = {
            "target": info.target,
            "provider": info.provider,
            "host": info.host,
            "version": info.flightlog_version,
        }
        return RunMetrics(
            run_id=label(run.run_id),
            project=label(info.project),
            status=status,
            about={name: label(value) for name, value in about.items()},
            values={
                "run_start_time_seconds": started,
                "run_end_time_seconds": ended,
                "run_duration_seconds": lived if over and info.duration_s is None else info.duration_s,
                "run_heartbeat_time_seconds": unix_time(info.heartbeat),
                "run_problems": len(run.problems) + self._streams.skipped,
                "run_status": {
                    (one,): one == status for one in STATUSES if one != "unknown" or status == "unknown"
                },
                "workers": 0 if over else found.workers.up,
                "workers_seen": len(found.workers),
                "workers_lost": sum(isinstance(event, WorkerLost) for event in found.workers.events),
                "tasks": {(state,): tasks[state] for state in TASK_STATES},
                **{f"tasks_{event}": self._events[f"task_{event}"] for event in TASK_EVENTS},
                "failures": {key: float(self._failures.counts[key]) for key in sorted(self._failures.counts)},
                "cache_lookups": {(result,): number for result, number in found.lookups.items()}
                if any(found.lookups.values())
                else {},
                "cache_saved_seconds": self._saved_s,
                "cost": self._cost(run, until, over),
                "recorder_lines": sum(sum(writer.lines.values()) for writer in writers),
                "recorder_lost_lines": sum(sum(writer.lost.values()) for writer in writers),
                "recorder_cpu_seconds": overhead(writers, None).background_cpu_s,
                **self._gauges(),
            },
            durations=self._durations.choose(),
        )

    def _cost(self, run: Run, until: int, over: bool) -> dict[tuple[str, ...], float]:
        """By currency, as the live views have it; where there are several currencies, the sum in each."""
        workers, started = self._totals.workers, moment(run.info.start_time)
        cost = self._totals.cost.summary(workers, run.info.provider, started, until, over=over)
        if cost.total is not None:
            return {} if cost.currency is None else {(label(cost.currency),): cost.total}
        sums: dict[tuple[str, ...], float] = {}
        for item in cost.by_item.values():
            if item.amount is not None:
                key = (label(item.currency),)
                sums[key] = sums.get(key, 0.0) + item.amount
        return sums

    def _gauges(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The newest sample of each node and GPU in base units; what it does not say is left out."""
        known = [sample for sample in self._totals.machines.samples() if sample.host is not None]
        latest = sorted(known, key=lambda sample: sample.timestamp)[-PrometheusLimits.max_machines :]
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for place, sample in sorted(((_place(one), one) for one in latest), key=lambda one: one[0]):
            of = "gpu" if sample.scope == "gpu" else "node"
            for name, (field, _) in (GPU if of == "gpu" else NODE).items():
                value = getattr(sample, field)
                if value is not None:
                    scale = 0.01 if name.endswith("_ratio") else 1.0
                    found.setdefault(f"{of}_{name}", {})[place] = value * scale
        return found


def _place(sample: ResourceSample) -> tuple[str, ...]:
    """The labels of a node, or of a GPU: its index on the host, with the instance of a partitioned one."""
    if sample.scope != "gpu":
        return (label(sample.host),)
    gpu = "unknown" if sample.gpu_index is None else str(sample.gpu_index)
    if sample.gpu_mig is not None:
        gpu = label(f"{gpu}/{sample.gpu_mig}")
    elif sample.gpu_index is None and sample.gpu_uuid is not None:
        gpu = label(sample.gpu_uuid)
    return label(sample.host), gpu, label(sample.gpu_name)


def label(text: str | None) -> str:
    """A text as a label: bounded, and nothing that UTF-8 cannot hold. The exposition escapes the rest."""
    cut = (text or "")[: PrometheusLimits.max_label_chars]
    return cut.encode("utf-8", "replace").decode()


class HistogramTally:
    """Counts durations into the buckets."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    @property
    def count(self) -> int:
        """How many were added."""
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        """Count one duration; NaN and other invalid values are ignored."""
        if seconds >= 0:
            self._counts[bisect_left(BUCKETS_S, seconds)] += 1
            self.sum_s += seconds

    def take(self, other: HistogramTally) -> None:
        """Count what another has counted."""
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.sum_s += other.sum_s

    def at_most(self) -> list[int]:
        """How many took at most as long as each bound, and last how many at all."""
        return list(accumulate(self._counts))


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

    def choose(self) -> dict[str, HistogramTally]:
        """The histograms by label, in order of the names, `OTHER` last."""
        if not self._chosen:
            self._chosen = True
            heaviest = sorted(self._own(), key=lambda name: (-self._tallies[name].count, name))
            for name in heaviest[self._room :]:
                self._tallies.setdefault(OTHER, HistogramTally()).take(self._tallies.pop(name))
        return {
            name: self._tallies[name]
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

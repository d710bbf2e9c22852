"""The metrics of runs: declared once, read from a run as it goes on, with a bounded number of labels.

They are named by Prometheus's conventions (base units, `_total` for counters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from prometheus_client import core as metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from flightlog.analyze.live.follow import LiveReader, read_ended_run, signature_of
from flightlog.analyze.live.workers import LiveWorkers
from flightlog.analyze.report.summary import overhead
from flightlog.analyze.report.tasks import COUNTS_SQL, PENDING
from flightlog.core.time import SECOND, moment
from flightlog.export.limits import PrometheusLimits
from flightlog.store.layout import ENDED
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.read.files import find_parts
from flightlog.store.run import Run
from flightlog.store.tables.sources import is_settled

if TYPE_CHECKING:
    from flightlog.analyze.live.state import LiveEvents
    from flightlog.store.read.events import RunReading
    from flightlog.store.tables.run_tables import RunTables

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


STREAMS = ("tasks", "workers", "resources", "failures", "cache", "cost", "jobs")


class DurationHistogram(NamedTuple):
    """Durations of completed tasks."""

    sum_s: float
    at_most: list[int]
    """How many took at most as long as each bound of `BUCKETS_S`, and last how many at all."""


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
    durations: dict[str, DurationHistogram]
    """Execution of completed tasks by name; a bounded number of names, and `OTHER`."""

    @property
    def labels(self) -> list[str]:
        """Of everything that is of this run."""
        return [self.project, self.run_id]


def families(runs: Sequence[RunMetrics], *, now_of_ended: bool = False) -> Iterator[Metric]:
    """The metrics of these runs. Gauges of nodes and GPUs are included for running runs, and for others with
    `now_of_ended`. A family without any known value is left out.
    """
    info = metrics.InfoMetricFamily("flightlog_run", "What a run is; the value is always 1.", labels=RUN)
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
    histogram = metrics.HistogramMetricFamily(
        "flightlog_task_duration_seconds",
        "Execution time of completed tasks, queueing not counted, by name of the task.",
        labels=[*RUN, "task"],
    )
    bounds = [*map(floatToGoString, BUCKETS_S), "+Inf"]
    for run in runs:
        for task, found in run.durations.items():
            buckets = list(zip(bounds, map(float, found.at_most), strict=True))
            histogram.add_metric([*run.labels, task], buckets, found.sum_s)
    return histogram


_TASKS = f"""
SELECT {COUNTS_SQL}, count(*) FILTER (started IS NOT NULL) AS started,
    count(*) FILTER (state = 'failed') AS all_failed
FROM attempt_intervals
"""  # noqa: S608 - constants
_DURATIONS = f"""
SELECT task, sum(duration_s),
    {", ".join(f"count(*) FILTER (duration_s <= {bound})" for bound in BUCKETS_S)}, count(*)
FROM attempt_intervals WHERE state = 'completed' AND duration_s >= 0 AND isfinite(duration_s)
GROUP BY task ORDER BY count(*) DESC, task
"""  # noqa: S608 - constants
_FAILURES = """
SELECT coalesce(scope, 'unknown'), coalesce(nullif(error_type, ''), 'unknown'), count(*),
    min("timestamp") AS first
FROM failures WHERE event = 'failure' GROUP BY ALL ORDER BY first, 1, 2
"""
_LOOKUPS = """
SELECT result, count(*), coalesce(sum(greatest(saved_s, 0)) FILTER (result = 'hit'), 0)
FROM cache WHERE event = 'cache_lookup' GROUP BY result
"""
_SAMPLES = """
SELECT arg_max(resources, row("timestamp", writer, seq)) AS latest FROM resources
WHERE event = 'resource_sample' AND scope IN ('node', 'gpu') AND host IS NOT NULL AND "timestamp" IS NOT NULL
GROUP BY scope, host, gpu_index, gpu_uuid, gpu_mig ORDER BY max("timestamp") DESC LIMIT $few
"""


class RunWatch:
    """One run. Not thread-safe. Its tables are those of the live views, and what is counted is asked of them.

    The first `look` reads the run's tasks, workers, samples, lookups, failures and costs; later ones only new
    lines. Spans are counted by their writers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: LiveReader | None = None
        self._ended: tuple[object, RunMetrics] | None = None
        """The metrics of a run that is over, and the files and documents that they are of."""
        self._task_names = StableLabels(PrometheusLimits.max_task_names)
        self._failures = StableLabels(PrometheusLimits.max_failure_kinds)

    def look(self, observer: Observer) -> RunMetrics:
        """The metrics as of now. Raises `OSError` where the folder cannot be read at all."""
        run = Run(self.path, observer=observer)
        if run.status != "running" and is_settled(run):
            self._reader = None
            return self._of_ended(run, observer.now)
        if self._reader is None:
            memory = PrometheusLimits.max_memory_per_run
            self._reader = LiveReader(self.path, run.run_id, STREAMS, memory)
        self._reader.read(run)
        return self._metrics(
            run, self._reader.tables, self._reader.events, self._reader.skipped, observer.now
        )

    def _of_ended(self, run: Run, now: float) -> RunMetrics:
        """Those of a run that nobody writes into any more, which is read again only where it has changed."""
        key = (signature_of(find_parts(self.path)), run.info, run.writers())
        if self._ended is None or self._ended[0] != key:

            def ask(tables: RunTables, events: LiveEvents, reading: RunReading) -> RunMetrics:
                found = reading.completeness()
                return self._metrics(run, tables, events, found.foreign + found.oversized, now)

            self._ended = key, read_ended_run(run, ask)
        return self._ended[1]

    def _metrics(
        self, run: Run, tables: RunTables, events: LiveEvents, skipped: int, now: float
    ) -> RunMetrics:
        """`skipped` are lines that hold no event."""
        info, writers, status = run.info, run.writers(), run.status
        over = status != "running"
        ended = unix_time(info.end_time or info.heartbeat) if over else None
        started = unix_time(info.start_time)
        lived = None if started is None or ended is None else max(0.0, ended - started)
        until = round(now * SECOND) if ended is None else round(ended * SECOND)
        [tasks] = tables.records(_TASKS)
        counted = {**tasks, "failed": tasks["all_failed"]}
        states = {**tasks, "pending": tables.scalar(PENDING) if tasks["not_begun"] else 0}
        missing = over and info.tasks_submitted > 0 and "tasks" not in run.streams()
        workers = LiveWorkers(tables, events.workers, until)
        lookups = {result: (number, saved) for result, number, saved in tables.execute(_LOOKUPS).fetchall()}
        about = {name: getattr(info, name) for name in ("target", "provider", "host")}
        about["version"] = info.flightlog_version
        results = ("hit", "miss", "bypass") if lookups else ()
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
                "run_problems": len(run.problems) + skipped,
                "run_status": {(one,): one == status for one in STATUSES if one in {status, *STATUSES[:-1]}},
                "workers": 0 if over else workers.up,
                "workers_seen": len(workers.names),
                "workers_lost": workers.lost,
                # Of lines that are not there it is unknown what became of the tasks that were counted.
                "tasks": None if missing else {(state,): states[state] for state in TASK_STATES},
                **{f"tasks_{event}": None if missing else counted[event] for event in TASK_EVENTS},
                "failures": self._failures_of(tables),
                "cache_lookups": {(one,): lookups.get(one, (0,))[0] for one in results},
                "cache_saved_seconds": sum(saved for _, saved in lookups.values()),
                "cost": _cost(run, events, workers, until),
                "recorder_lines": sum(sum(writer.lines.values()) for writer in writers),
                "recorder_lost_lines": sum(sum(writer.lost.values()) for writer in writers),
                "recorder_cpu_seconds": overhead(writers, None).background_cpu_s,
                **_gauges(tables),
            },
            durations=self._durations(tables),
        )

    def _durations(self, tables: RunTables) -> dict[str, DurationHistogram]:
        """By name of the task, in order, those without a label of their own last."""
        rows = [((label(task),), values) for task, *values in tables.execute(_DURATIONS).fetchall()]
        found = self._task_names.summed(rows)
        return {name: DurationHistogram(total, counts) for (name,), (total, *counts) in found.items()}

    def _failures_of(self, tables: RunTables) -> dict[tuple[str, ...], float]:
        found = tables.execute(_FAILURES).fetchall()
        rows = [((scope, label(kind)), [count]) for scope, kind, count, _ in found]
        return {kind: count for kind, (count,) in self._failures.summed(rows).items()}


def _cost(run: Run, events: LiveEvents, workers: LiveWorkers, until: int) -> dict[tuple[str, ...], float]:
    """By currency, as the live views have it; where there are several currencies, the sum in each."""
    started = moment(run.info.start_time)
    wall = None if started is None else max(0, until - started)
    cost = events.cost.summary(workers, run.info.provider, wall, over=run.status != "running")
    if cost.total is not None:
        return {} if cost.currency is None else {(label(cost.currency),): cost.total}
    sums: dict[tuple[str, ...], float] = {}
    for item in cost.by_item.values():
        if item.amount is not None:
            key = (label(item.currency),)
            sums[key] = sums.get(key, 0.0) + item.amount
    return sums


def _gauges(tables: RunTables) -> dict[str, dict[tuple[str, ...], float]]:
    """The newest sample of each node and GPU in base units; what it does not say is left out."""
    rows = tables.execute(_SAMPLES, {"few": PrometheusLimits.max_machines}).fetchall()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for place, sample in sorted(((_place(one), one) for (one,) in rows), key=lambda one: one[0]):
        of = "gpu" if sample["scope"] == "gpu" else "node"
        for name, (field, _) in (GPU if of == "gpu" else NODE).items():
            value = sample[field]
            if value is not None:
                scale = 0.01 if name.endswith("_ratio") else 1.0
                found.setdefault(f"{of}_{name}", {})[place] = value * scale
    return found


def _place(sample: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels of a node, or of a GPU: its index on the host, with the instance of a partitioned one."""
    if sample["scope"] != "gpu":
        return (label(sample["host"]),)
    index, mig, uuid = sample["gpu_index"], sample["gpu_mig"], sample["gpu_uuid"]
    gpu = "unknown" if index is None else str(index)
    if mig is not None:
        gpu = label(f"{gpu}/{mig}")
    elif index is None and uuid is not None:
        gpu = label(uuid)
    return label(sample["host"]), gpu, label(sample["gpu_name"])


def label(text: str | None) -> str:
    """A text as a label: bounded, and nothing that UTF-8 cannot hold. The exposition escapes the rest."""
    cut = (text or "")[: PrometheusLimits.max_label_chars]
    return cut.encode("utf-8", "replace").decode()


class StableLabels:
    """Which keys have a label of their own: at most so many, first come first served, and for good.

    So a count under a label never decreases, nor does that of all others, as they would if the most frequent
    keys were chosen anew each time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._chosen: set[tuple[str, ...]] = set()

    def summed(self, rows: Sequence[tuple[tuple[str, ...], list[Any]]]) -> dict[tuple[str, ...], list[Any]]:
        """The values of rows by label, in order; those without one are added up, and come last.

        Of keys without a label the first ones get those that are left.
        """
        found: dict[tuple[str, ...], list[Any]] = {}
        for key, values in rows:
            if len(self._chosen) < self._most:
                self._chosen.add(key)
            shown = key if key in self._chosen else (OTHER,) * len(key)
            known = found.get(shown, [0] * len(values))
            found[shown] = [a + b for a, b in zip(known, values, strict=True)]
        return dict(sorted(found.items(), key=lambda one: (one[0][0] == OTHER, one[0])))

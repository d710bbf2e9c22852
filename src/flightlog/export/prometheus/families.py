"""Figures as families of metrics, named as Prometheus's conventions want: base units, `_total` for
counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from flightlog.export.prometheus.run_metrics import BUCKETS_S, TASK_EVENTS, TASK_STATES, RunFigures, label
from flightlog.store.layout import ENDED

RUN = ("project", "run_id")
"""The labels of everything that is of one run."""
STATUSES = ("running", *sorted(ENDED), "unknown")
_EVENTS = {
    "submitted": "Tasks handed over for execution.",
    "started": "Attempts that a worker began to execute.",
    "completed": "Tasks that ran to their end.",
    "failed": "Attempts that ended with an error, those that were tried again included.",
    "retried": "Attempts that failed and were tried again.",
    "cancelled": "Tasks given up before they ended by themselves.",
}
_NODE = {
    "cpu_ratio": "Share of the node's CPUs in use, 0 to 1, at the newest sample.",
    "cpus": "CPUs of the node.",
    "load1": "Load average of the node over one minute.",
    "memory_used_bytes": "Memory in use on the node, reclaimable cache not counted.",
    "memory_size_bytes": "Memory of the node.",
    "swap_used_bytes": "Swap in use on the node.",
    "disk_read_bytes_per_second": "Read from the node's storage.",
    "disk_written_bytes_per_second": "Written to the node's storage.",
    "network_received_bytes_per_second": "Received by the node, loopback not counted.",
    "network_sent_bytes_per_second": "Sent by the node, loopback not counted.",
}
_GPU = {
    "utilization_ratio": "Share of time that a kernel ran on the GPU, 0 to 1.",
    "memory_used_bytes": "Memory of the GPU in use by everyone.",
    "memory_size_bytes": "Memory of the GPU.",
    "process_memory_bytes": "Memory of the GPU in use by the run's own processes.",
    "power_watts": "Power drawn by the GPU.",
    "temperature_celsius": "Temperature of the GPU.",
}


def families(runs: Sequence[RunFigures], *, now_of_ended: bool = False) -> Iterator[Metric]:
    """The metrics of these runs. What is so now, of nodes and GPUs, is given of runs that run; of others if
    asked for.
    """
    yield from _about_runs(runs)
    yield from _about_tasks(runs)
    yield from _about_the_rest(runs)
    yield from _about_places([run for run in runs if run.status == "running" or now_of_ended])


def _of(run: RunFigures) -> list[str]:
    return [run.project, run.run_id]


def _gauge(
    name: str, help_: str, rows: Iterable[tuple[list[str], float | None]], labels: Sequence[str] = ()
) -> Iterator[Metric]:
    """A family of gauges; none where no value is known."""
    family = GaugeMetricFamily(name, help_, labels=[*RUN, *labels])
    for values, number in rows:
        if number is not None:
            family.add_metric(values, number)
    if family.samples:
        yield family


def _counter(
    name: str, help_: str, rows: Iterable[tuple[list[str], float]], labels: Sequence[str] = ()
) -> Iterator[Metric]:
    family = CounterMetricFamily(name, help_, labels=[*RUN, *labels])
    for values, number in rows:
        family.add_metric(values, number)
    if family.samples:
        yield family


def _about_runs(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    info = InfoMetricFamily("flightlog_run", "What a run is; the value is always 1.", labels=RUN)
    for run in runs:
        known = {"target": run.target, "provider": run.provider, "host": run.host, "version": run.version}
        info.add_metric(_of(run), {name: label(value) for name, value in known.items()})
    if runs:
        yield info
    yield from _gauge(
        "flightlog_run_status",
        "1 for the status that a run has, 0 for the others.",
        (
            ([*_of(run), status], float(run.status == status))
            for run in runs
            for status in STATUSES
            if status != "unknown" or run.status == "unknown"
        ),
        ["status"],
    )
    for name, help_, field in (
        ("start_time_seconds", "When the run started, in Unix seconds.", "started_s"),
        (
            "end_time_seconds",
            "When the run ended or was last heard of, in Unix seconds; while it runs, none.",
            "ended_s",
        ),
        ("duration_seconds", "Wall time of the run, so far if it runs.", "duration_s"),
        ("heartbeat_time_seconds", "When the run's recorder was last heard of, in Unix seconds.", "heard_s"),
    ):
        yield from _gauge(f"flightlog_run_{name}", help_, ((_of(run), getattr(run, field)) for run in runs))


def _about_tasks(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    for event in TASK_EVENTS:
        rows = ((_of(run), float(run.task_events[event])) for run in runs)
        yield from _counter(f"flightlog_tasks_{event}", _EVENTS[event], rows)
    yield from _gauge(
        "flightlog_tasks",
        "Tasks by where they are now; failed are those that failed for good.",
        (([*_of(run), state], float(run.tasks[state])) for run in runs for state in TASK_STATES),
        ["state"],
    )
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
    if histogram.samples:
        yield histogram


def _about_the_rest(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    yield from _gauge(
        "flightlog_workers", "Workers that are up now.", ((_of(run), float(run.workers)) for run in runs)
    )
    for name, help_, field in (
        ("workers_seen", "Workers that there have been.", "workers_seen"),
        ("workers_lost", "Workers that went away without being asked to.", "workers_lost"),
        ("cache_saved_seconds", "Time that reused results had taken to compute.", "saved_s"),
        ("recorder_lines", "Events that the run's recorders have numbered.", "lines"),
        ("recorder_lost_lines", "Events that could not be written.", "lost"),
        ("recorder_cpu_seconds", "CPU time of the recorders' own threads.", "recorder_cpu_s"),
    ):
        rows = ((_of(run), float(value)) for run in runs if (value := getattr(run, field)) is not None)
        yield from _counter(f"flightlog_{name}", help_, rows)
    yield from _counter(
        "flightlog_failures",
        "Failures on record, by what failed and the class of the error.",
        (
            ([*_of(run), scope, kind], float(number))
            for run in runs
            for (scope, kind), number in sorted(run.failures.items())
        ),
        ["scope", "error_type"],
    )
    yield from _counter(
        "flightlog_cache_lookups",
        "Lookups of kept results; bypass is a cache that was switched off.",
        (
            ([*_of(run), result], float(number))
            for run in runs
            if any(run.cache.values())
            for result, number in run.cache.items()
        ),
        ["result"],
    )
    yield from _gauge(
        "flightlog_cost",
        "What the run has cost so far, estimated, in units of the currency.",
        (([*_of(run), currency], amount) for run in runs for currency, amount in run.cost.items()),
        ["currency"],
    )
    yield from _gauge(
        "flightlog_run_problems",
        "Documents of the run that are damaged, and lines that hold no event.",
        ((_of(run), float(run.problems)) for run in runs),
    )


def _about_places(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    for name, help_ in _NODE.items():
        rows = (
            ([*_of(run), one.host], one.values.get(name))
            for run in runs
            for one in run.gauges
            if one.gpu is None
        )
        yield from _gauge(f"flightlog_node_{name}", help_, rows, ["host"])
    for name, help_ in _GPU.items():
        rows = (
            ([*_of(run), one.host, one.gpu, one.gpu_name or ""], one.values.get(name))
            for run in runs
            for one in run.gauges
            if one.gpu is not None
        )
        yield from _gauge(f"flightlog_gpu_{name}", help_, rows, ["host", "gpu", "gpu_name"])

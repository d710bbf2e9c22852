"""Metrics for OTLP: task counters and durations, resource samples, and the user's own series.

Tasks are counted by event time, whatever the order of reading, in steps that widen once there are very many.
No task id is ever a label, and at most `ExportLimits.max_task_names` task names are. Percentages are never
summed: every node, worker and GPU is a series of its own. Samples of single tasks are left out; they stand in
the task's span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from flightlog.core.time import SECOND, moment
from flightlog.events import Event, Metric, ResourceSample
from flightlog.events.codec import UnknownEvent
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp.model import Attributes, Histogram, Instrument, Point, known

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.\-/]+")


class _Figure(NamedTuple):
    """One field of a sample, and its OpenTelemetry instrument."""

    field: str
    instrument: Instrument
    attributes: Attributes = {}


def _rate(name: str, what: str) -> Instrument:
    return Instrument(name, "By/s", "gauge", what)


_CPU = Instrument("system.cpu.utilization", "1", "gauge", "Share of the node's CPUs in use.")
_CPUS = Instrument("system.cpu.logical.count", "{cpu}", "level", "CPUs of the node.")
_MEMORY = Instrument("system.memory.usage", "By", "level", "Memory in use, reclaimable cache not counted.")
_MEMORY_SHARE = Instrument("system.memory.utilization", "1", "gauge", "Share of the node's memory in use.")
_LIMIT = Instrument("system.memory.limit", "By", "level", "Memory there is.")
_SWAP = Instrument("system.paging.usage", "By", "level", "Swap in use.")
_LOAD = Instrument("flightlog.node.load_1m", "{thread}", "gauge", "Load average over one minute.")
_DISK = _rate("flightlog.node.disk.io_rate", "Bytes moved from and to storage in a second.")
_NET = _rate(
    "flightlog.node.network.io_rate", "Bytes moved over the network in a second, loopback not counted."
)
_HOST_ENERGY = Instrument(
    "hw.host.energy", "J", "sum", "Energy of processors and memory, as the kernel counts it."
)
_PROCESS_CPU = Instrument("process.cpu.time", "s", "sum", "CPU time of a worker's process tree.")
_PROCESS_USE = Instrument("process.cpu.utilization", "1", "gauge", "Share of its CPUs that a worker uses.")
_RSS = Instrument("process.memory.usage", "By", "level", "Resident memory of a worker's process tree.")
_THREADS = Instrument("process.thread.count", "{thread}", "level", "Threads of a worker's process tree.")
_PROCESS_IO = Instrument(
    "process.disk.io", "By", "sum", "Bytes a worker's process tree moved from and to storage."
)
_CGROUP_CPU = Instrument("flightlog.cgroup.cpu.utilization", "1", "gauge", "Share of the quota in use.")
_CGROUP_MEMORY = Instrument("flightlog.cgroup.memory.usage", "By", "gauge", "Memory that the limit counts.")
_CGROUP_LIMIT = Instrument("flightlog.cgroup.memory.limit", "By", "gauge", "The memory limit.")
_GPU = Instrument("hw.gpu.utilization", "1", "gauge", "Share of time a kernel ran.")
_GPU_MEMORY = Instrument("hw.gpu.memory.usage", "By", "level", "Device memory in use by everyone.")
_GPU_LIMIT = Instrument("hw.gpu.memory.limit", "By", "level", "Device memory there is.")
_GPU_OWN = Instrument("flightlog.gpu.process.memory.usage", "By", "gauge", "Device memory in use by the run.")
_POWER = Instrument("hw.power", "W", "gauge", "Power drawn.")
_ENERGY = Instrument("hw.energy", "J", "sum", "Energy since the driver was loaded.")
_TEMPERATURE = Instrument("hw.temperature", "Cel", "gauge", "Temperature.")

FIGURES: dict[str, tuple[_Figure, ...]] = {
    "node": (
        _Figure("cpu_percent", _CPU),
        _Figure("cpus", _CPUS),
        _Figure("load_1m", _LOAD),
        _Figure("memory_used_bytes", _MEMORY, {"system.memory.state": "used"}),
        _Figure("memory_total_bytes", _LIMIT),
        _Figure("swap_used_bytes", _SWAP, {"system.paging.state": "used"}),
        _Figure("disk_read_bytes_per_s", _DISK, {"disk.io.direction": "read"}),
        _Figure("disk_write_bytes_per_s", _DISK, {"disk.io.direction": "write"}),
        _Figure("net_recv_bytes_per_s", _NET, {"network.io.direction": "receive"}),
        _Figure("net_sent_bytes_per_s", _NET, {"network.io.direction": "transmit"}),
        _Figure("energy_j", _HOST_ENERGY),
    ),
    "worker": (
        _Figure("cpu_s", _PROCESS_CPU),
        _Figure("cpu_percent", _PROCESS_USE),
        _Figure("rss_bytes", _RSS),
        _Figure("threads", _THREADS),
        _Figure("read_bytes", _PROCESS_IO, {"disk.io.direction": "read"}),
        _Figure("write_bytes", _PROCESS_IO, {"disk.io.direction": "write"}),
    ),
    "cgroup": (
        _Figure("cpu_percent", _CGROUP_CPU),
        _Figure("memory_used_bytes", _CGROUP_MEMORY),
        _Figure("memory_total_bytes", _CGROUP_LIMIT),
    ),
    "gpu": (
        _Figure("gpu_percent", _GPU),
        _Figure("gpu_memory_used_bytes", _GPU_MEMORY),
        _Figure("gpu_memory_total_bytes", _GPU_LIMIT),
        _Figure("gpu_process_memory_bytes", _GPU_OWN),
        _Figure("gpu_power_w", _POWER),
        _Figure("gpu_energy_j", _ENERGY),
        _Figure("gpu_temperature_c", _TEMPERATURE),
    ),
}


def _fitting(value: int | float) -> int | float:
    """A number that 64 bits hold."""
    return value if isinstance(value, float) or -(1 << 63) <= value < 1 << 63 else float(value)


class SampleGauges:
    """Samples and users' metrics as points. `left_out` counts points beyond `ExportLimits.max_series`."""

    def __init__(self, host: str | None) -> None:
        self.left_out = 0
        self._host = host
        self._workers: set[str] = set()
        self._series: dict[str, Instrument] = {}
        self._since: dict[tuple[str, ...], int] = {}

    def take(self, event: Event | UnknownEvent) -> Iterator[Point]:
        """The points of an event; unknown values have none."""
        at = moment(event.timestamp)
        if at is None:
            return
        if isinstance(event, ResourceSample):
            yield from self._sampled(event, at)
        elif isinstance(event, Metric) and event.value is not None:
            instrument = self._of_user(event.name)
            if instrument is None:
                self.left_out += 1
            else:
                altered = {} if instrument.name == event.name else known({"flightlog.series": event.name})
                yield Point(instrument=instrument, time_ns=at, value=event.value, attributes=altered)

    def _sampled(self, event: ResourceSample, at: int) -> Iterator[Point]:
        figures = FIGURES.get(event.scope, ())
        about: Attributes = {}
        if event.scope == "gpu":
            name = event.gpu_uuid or (None if event.gpu_index is None else str(event.gpu_index))
            about = known(
                {
                    "hw.id": event.gpu_mig or name,
                    "hw.name": event.gpu_name,
                    "hw.type": "gpu",
                    "flightlog.gpu.index": event.gpu_index,
                }
            )
        elif event.scope == "worker":
            about = known({"cicd.worker.name": event.worker, "process.pid": event.pid})
            if not self._new_worker(f"{event.host} {event.worker} {event.pid}"):
                self.left_out += len(figures)
                return
        host = event.host or self._host
        for field, instrument, more in figures:
            value = getattr(event, field)
            if value is not None:
                value = value * 0.01 if field.endswith("_percent") else value
                about_it = {**about, **more}
                since = None if instrument.kind == "gauge" else self._first(instrument, host, about_it, at)
                yield Point(
                    instrument=instrument,
                    time_ns=at,
                    value=_fitting(value),
                    attributes=about_it,
                    host=host,
                    start_ns=since,
                )
        used, total = event.memory_used_bytes, event.memory_total_bytes
        if event.scope == "node" and used is not None and total:
            state = {"system.memory.state": "used"}
            yield Point(instrument=_MEMORY_SHARE, time_ns=at, value=used / total, attributes=state, host=host)

    def _first(self, instrument: Instrument, host: str | None, about: Attributes, at: int) -> int:
        """When a series was first seen: the start of a sum whose true start is unknown."""
        series = (instrument.name, host or "", *map(str, about.values()))
        return min(self._since.setdefault(series, at), at)

    def _new_worker(self, worker: str) -> bool:
        if len(self._workers) < ExportLimits.max_series:
            self._workers.add(worker)
        return worker in self._workers

    def _of_user(self, name: str) -> Instrument | None:
        found = self._series.get(name)
        if found is None and len(self._series) < ExportLimits.max_series:
            plain = _NOT_IN_A_NAME.sub("_", name)[:255] or "_"
            plain = plain if plain[0].isalpha() else f"m{plain}"[:255]
            found = self._series[name] = Instrument(plain, "", "gauge", "A series of the run's own.")
        return found


OTHER = "other"
"""What tasks are called in metrics that come after `ExportLimits.max_task_names` other names."""
BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    *(120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0),
)
"""Seconds: from a millisecond to a day."""

COUNTS = (
    Instrument("flightlog.tasks.submitted", "{task}", "sum", "Tasks handed over for execution."),
    Instrument("flightlog.tasks.started", "{attempt}", "sum", "Attempts started by a worker."),
    Instrument("flightlog.tasks.completed", "{task}", "sum", "Tasks that ran to their end."),
    Instrument("flightlog.tasks.failed", "{task}", "sum", "Tasks that ended with an error."),
    Instrument("flightlog.tasks.canceled", "{task}", "sum", "Cancelled tasks, which are not errors."),
    Instrument("flightlog.tasks.retried", "{attempt}", "sum", "Attempts that failed and were retried."),
    Instrument("flightlog.tasks.running", "{attempt}", "level", "Attempts that are being executed."),
)
SUBMITTED, STARTED, COMPLETED, FAILED, CANCELED, RETRIED, RUNNING = range(len(COUNTS))
DURATION = Instrument(
    "flightlog.task.duration",
    "s",
    "histogram",
    "Execution of the attempts that tasks completed or failed with, by task name.",
)


class TaskCounters:
    """Counts per step of event time, and one histogram per task name.

    Memory is bounded. What `points` has returned is final: an earlier event that arrives later counts in the
    first step that is still open.
    """

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.latest_ns = start_ns
        self._step = SECOND
        self._steps: dict[int, list[int]] = {}
        self._totals = [0] * len(COUNTS)
        self._settled_ns = start_ns
        self._durations: dict[str, Histogram] = {}

    def count(self, which: int, at_ns: int) -> None:
        """One more of these at this moment."""
        self._at(at_ns)[which] += 1

    def ran(self, since_ns: int, until_ns: int | None) -> None:
        """Count an attempt that ran in this interval; the end is None while it runs. An end before the start
        counts as the start.
        """
        self._at(since_ns)[RUNNING] += 1
        if until_ns is not None:
            self.stopped(since_ns, until_ns)

    def stopped(self, since_ns: int, until_ns: int) -> None:
        """An attempt that was known to run from `since_ns` on runs no more."""
        self._at(max(since_ns, until_ns))[RUNNING] -= 1

    def took(self, task: str, duration_s: float) -> None:
        """Count the duration of an attempt of this task."""
        if task not in self._durations and len(self._durations) >= ExportLimits.max_task_names:
            task = OTHER
        if task not in self._durations:
            self._durations[task] = Histogram(bounds=BOUNDS, counts=[0] * (len(BOUNDS) + 1))
        self._durations[task].add(max(0.0, duration_s))

    def points(self, until_ns: int | None, *, after_ns: int = 0) -> Iterator[Point]:
        """The counts at the end of each step before `until_ns` (None: all), oldest first; those up to
        `after_ns` left out.
        """
        for step in sorted(self._steps):
            if until_ns is not None and (step + 1) * self._step > until_ns:
                return
            *deltas, at_ns = self._steps.pop(step)
            self._settled_ns = max(self._settled_ns, (step + 1) * self._step)
            self._totals = [total + delta for total, delta in zip(self._totals, deltas, strict=True)]
            if at_ns > after_ns:
                yield from (
                    Point(instrument=instrument, time_ns=at_ns, value=total, start_ns=self.start_ns)
                    for instrument, total in zip(COUNTS, self._totals, strict=True)
                )

    def durations(self, at_ns: int) -> Iterator[Point]:
        """The histograms as they are."""
        for task, found in self._durations.items():
            yield Point(
                instrument=DURATION,
                time_ns=at_ns,
                value=replace(found, counts=[*found.counts]),
                start_ns=self.start_ns,
                attributes={"cicd.pipeline.task.name": task},
            )

    def _at(self, moment_ns: int) -> list[int]:
        """The step of a moment: its counts, and behind them the latest moment that was counted in it."""
        moment_ns = max(moment_ns, self._settled_ns)
        self.latest_ns = max(self.latest_ns, moment_ns)
        found = self._steps.get(moment_ns // self._step)
        if found is None:
            if len(self._steps) >= ExportLimits.max_count_moments:
                self._widen()
                return self._at(moment_ns)
            found = self._steps[moment_ns // self._step] = [*[0] * len(COUNTS), moment_ns]
        found[-1] = max(found[-1], moment_ns)
        return found

    def _widen(self) -> None:
        """Make steps twice as long."""
        self._step *= 2
        merged: dict[int, list[int]] = {}
        for step, counts in self._steps.items():
            into = merged.setdefault(step // 2, [*[0] * len(COUNTS), 0])
            into[:-1] = [one + other for one, other in zip(into[:-1], counts[:-1], strict=True)]
            into[-1] = max(into[-1], counts[-1])
        self._steps = merged

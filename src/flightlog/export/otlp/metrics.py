"""Metrics for OTLP: task counters and durations, resource samples, and the user's own series.

Tasks are counted by event time, whatever the order of reading, in steps that widen once there are very many.
No task id is ever a label, and at most `ExportLimits.max_task_names` task names are. Percentages are never
summed: every node, worker and GPU is a series of its own. Samples of single tasks are left out; they stand in
the task's span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from flightlog.core.time import SECOND, moment
from flightlog.events import Event, Metric, ResourceSample
from flightlog.events.codec import UnknownEvent
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp.model import Attributes, Histogram, Instrument, InstrumentKind, Point, known

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.\-/]+")


_NET = "Bytes moved over the network in a second, loopback not counted."
_USED = "Memory in use, reclaimable cache not counted."
_COUNTED = "Memory that the limit counts."
_DEVICE = "Device memory in use by everyone."
_OWN = "Device memory in use by the run."
_TREE = "Resident memory of a worker's process tree."
_SHARE_OF_WORKER = "Share of its CPUs that a worker uses."
_DISK = "Bytes moved from and to storage in a second."
_PROCESS_DISK = "Bytes a worker's process tree moved from and to storage."
_ENERGY = "Energy of processors and memory, as the kernel counts it."
_FIGURES: tuple[tuple[str, str, InstrumentKind, str, str, str], ...] = (
    ("node", "cpu_percent", "gauge", "1", "system.cpu.utilization", "Share of the node's CPUs in use."),
    ("node", "cpus", "level", "{cpu}", "system.cpu.logical.count", "CPUs of the node."),
    ("node", "load_1m", "gauge", "{thread}", "flightlog.node.load_1m", "Load average over one minute."),
    ("node", "memory_used_bytes", "level", "By", "system.memory.usage", _USED),
    ("node", "memory_total_bytes", "level", "By", "system.memory.limit", "Memory there is."),
    ("node", "swap_used_bytes", "level", "By", "system.paging.usage", "Swap in use."),
    ("node", "disk_read_bytes_per_s", "gauge", "By/s", "flightlog.node.disk.io_rate", _DISK),
    ("node", "disk_write_bytes_per_s", "gauge", "By/s", "flightlog.node.disk.io_rate", _DISK),
    ("node", "net_recv_bytes_per_s", "gauge", "By/s", "flightlog.node.network.io_rate", _NET),
    ("node", "net_sent_bytes_per_s", "gauge", "By/s", "flightlog.node.network.io_rate", _NET),
    ("node", "energy_j", "sum", "J", "hw.host.energy", _ENERGY),
    ("worker", "cpu_s", "sum", "s", "process.cpu.time", "CPU time of a worker's process tree."),
    ("worker", "cpu_percent", "gauge", "1", "process.cpu.utilization", _SHARE_OF_WORKER),
    ("worker", "rss_bytes", "level", "By", "process.memory.usage", _TREE),
    ("worker", "threads", "level", "{thread}", "process.thread.count", "Threads of a worker's process tree."),
    ("worker", "read_bytes", "sum", "By", "process.disk.io", _PROCESS_DISK),
    ("worker", "write_bytes", "sum", "By", "process.disk.io", _PROCESS_DISK),
    ("cgroup", "cpu_percent", "gauge", "1", "flightlog.cgroup.cpu.utilization", "Share of the quota in use."),
    ("cgroup", "memory_used_bytes", "gauge", "By", "flightlog.cgroup.memory.usage", _COUNTED),
    ("cgroup", "memory_total_bytes", "gauge", "By", "flightlog.cgroup.memory.limit", "The memory limit."),
    ("gpu", "gpu_percent", "gauge", "1", "hw.gpu.utilization", "Share of time a kernel ran."),
    ("gpu", "gpu_memory_used_bytes", "level", "By", "hw.gpu.memory.usage", _DEVICE),
    ("gpu", "gpu_memory_total_bytes", "level", "By", "hw.gpu.memory.limit", "Device memory there is."),
    ("gpu", "gpu_process_memory_bytes", "gauge", "By", "flightlog.gpu.process.memory.usage", _OWN),
    ("gpu", "gpu_power_w", "gauge", "W", "hw.power", "Power drawn."),
    ("gpu", "gpu_energy_j", "sum", "J", "hw.energy", "Energy since the driver was loaded."),
    ("gpu", "gpu_temperature_c", "gauge", "Cel", "hw.temperature", "Temperature."),
)
"""Fields of samples by scope, each with the kind, unit, name and meaning of its instrument."""
_STATES: dict[str, Attributes] = {
    "memory_used_bytes": {"system.memory.state": "used"},
    "swap_used_bytes": {"system.paging.state": "used"},
    "disk_read_bytes_per_s": {"disk.io.direction": "read"},
    "disk_write_bytes_per_s": {"disk.io.direction": "write"},
    "read_bytes": {"disk.io.direction": "read"},
    "write_bytes": {"disk.io.direction": "write"},
    "net_recv_bytes_per_s": {"network.io.direction": "receive"},
    "net_sent_bytes_per_s": {"network.io.direction": "transmit"},
}
"""Attributes that tell apart fields of one instrument."""
FIGURES: dict[str, list[tuple[str, Instrument, Attributes]]] = {}
for _scope, _field, _kind, _unit, _name, _what in _FIGURES:
    _about = {} if _scope == "cgroup" else _STATES.get(_field, {})
    FIGURES.setdefault(_scope, []).append((_field, Instrument(_name, _unit, _kind, _what), _about))
_SHARE = "Share of the node's memory in use."
_MEMORY_SHARE = Instrument("system.memory.utilization", "1", "gauge", _SHARE)


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
            index = None if event.gpu_index is None else str(event.gpu_index)
            named = {"hw.id": event.gpu_mig or event.gpu_uuid or index, "hw.name": event.gpu_name}
            about = known({**named, "hw.type": "gpu", "flightlog.gpu.index": event.gpu_index})
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

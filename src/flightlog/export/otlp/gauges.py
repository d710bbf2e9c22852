"""What machines, processes and GPUs did, as measured points; and the users' own series.

Percentages are never summed: every node, worker and GPU is a series of its own. Samples of single tasks are
left out, for a task id is no label; their figures stand in the task's span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from flightlog.core.time import moment
from flightlog.events import Event, Metric, ResourceSample
from flightlog.events.codec import UnknownEvent
from flightlog.export.otlp.attributes import known
from flightlog.export.otlp.model import Attributes, Instrument, Point

MAX_SERIES = 1000
"""Workers, and names of users' series, beyond which there are no new ones."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.\-/]+")


class _Figure(NamedTuple):
    """One field of a sample, and what it is in OpenTelemetry's words."""

    field: str
    instrument: Instrument
    scale: float | None = None
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
        _Figure("cpu_percent", _CPU, 0.01),
        _Figure("cpus", _CPUS),
        _Figure("load_1m", _LOAD),
        _Figure("memory_used_bytes", _MEMORY, None, {"system.memory.state": "used"}),
        _Figure("memory_total_bytes", _LIMIT),
        _Figure("swap_used_bytes", _SWAP, None, {"system.paging.state": "used"}),
        _Figure("disk_read_bytes_per_s", _DISK, None, {"disk.io.direction": "read"}),
        _Figure("disk_write_bytes_per_s", _DISK, None, {"disk.io.direction": "write"}),
        _Figure("net_recv_bytes_per_s", _NET, None, {"network.io.direction": "receive"}),
        _Figure("net_sent_bytes_per_s", _NET, None, {"network.io.direction": "transmit"}),
        _Figure("energy_j", _HOST_ENERGY),
    ),
    "worker": (
        _Figure("cpu_s", _PROCESS_CPU),
        _Figure("cpu_percent", _PROCESS_USE, 0.01),
        _Figure("rss_bytes", _RSS),
        _Figure("threads", _THREADS),
        _Figure("read_bytes", _PROCESS_IO, None, {"disk.io.direction": "read"}),
        _Figure("write_bytes", _PROCESS_IO, None, {"disk.io.direction": "write"}),
    ),
    "cgroup": (
        _Figure("cpu_percent", _CGROUP_CPU, 0.01),
        _Figure("memory_used_bytes", _CGROUP_MEMORY),
        _Figure("memory_total_bytes", _CGROUP_LIMIT),
    ),
    "gpu": (
        _Figure("gpu_percent", _GPU, 0.01),
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


class Gauges:
    """Samples and users' metrics as points. `left_out` counts points beyond `MAX_SERIES`."""

    def __init__(self, host: str | None) -> None:
        self.left_out = 0
        self._host = host
        self._workers: set[str] = set()
        self._series: dict[str, Instrument] = {}
        self._since: dict[tuple[str, ...], int] = {}

    def take(self, event: Event | UnknownEvent) -> Iterator[Point]:
        """The points of an event; what it does not know has none."""
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
        for field, instrument, scale, more in figures:
            value = getattr(event, field)
            if value is not None:
                about_it = {**about, **more}
                since = None if instrument.kind == "gauge" else self._first(instrument, host, about_it, at)
                yield Point(
                    instrument=instrument,
                    time_ns=at,
                    value=_fitting(value if scale is None else value * scale),
                    attributes=about_it,
                    host=host,
                    start_ns=since,
                )
        used, total = event.memory_used_bytes, event.memory_total_bytes
        if event.scope == "node" and used is not None and total:
            state = {"system.memory.state": "used"}
            yield Point(instrument=_MEMORY_SHARE, time_ns=at, value=used / total, attributes=state, host=host)

    def _first(self, instrument: Instrument, host: str | None, about: Attributes, at: int) -> int:
        """When a series was first seen: since when a sum is told whose true beginning is not known."""
        series = (instrument.name, host or "", *map(str, about.values()))
        return min(self._since.setdefault(series, at), at)

    def _new_worker(self, worker: str) -> bool:
        if len(self._workers) < MAX_SERIES:
            self._workers.add(worker)
        return worker in self._workers

    def _of_user(self, name: str) -> Instrument | None:
        found = self._series.get(name)
        if found is None and len(self._series) < MAX_SERIES:
            plain = _NOT_IN_A_NAME.sub("_", name)[:255] or "_"
            plain = plain if plain[0].isalpha() else f"m{plain}"[:255]
            found = self._series[name] = Instrument(plain, "", "gauge", "A series of the run's own.")
        return found

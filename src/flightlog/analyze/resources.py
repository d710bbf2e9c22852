"""What the machine and the processes used, as the samplers saw it."""

from __future__ import annotations

import math
from array import array

from msgspec import Struct

from flightlog.analyze.distribution import exact_sum
from flightlog.analyze.energy import EnergyTally, EnergyUse
from flightlog.analyze.gpus import GpuTally, GpuUse
from flightlog.analyze.load import Load, load_of
from flightlog.events import Event, ResourceSample


class NodeUse(Struct, frozen=True, kw_only=True):
    """The hosts. Figures of several hosts are never added up: means are over all samples, peaks of one
    host.
    """

    hosts: list[str]
    cpus: float | None
    """Cores of the largest host."""
    cpu_percent: Load
    """Of all cores of a host, 0 to 100."""
    load_1m_max: float | None
    memory_peak_bytes: int | None
    memory_total_bytes: int | None
    """Of the host with the peak."""
    swap_peak_bytes: int | None
    sent_bytes: int | None = None
    """Sent by all hosts together, to each other too, loopback left out; null where nobody measured."""


class ProcessUse(Struct, frozen=True, kw_only=True):
    """The process trees that were sampled, each a worker's or the run's own."""

    trees: int
    cpu_cores: Load
    """Cores in use by one tree."""
    cpu_s: float | None
    """CPU time spent between the first and the last sample of each tree, all trees together."""
    peak_rss_bytes: int | None
    """Of one tree."""
    read_bytes: int | None
    write_bytes: int | None
    """Storage I/O between the first and the last sample of each tree, all trees together."""
    threads_max: int | None
    processes_max: int | None


class CgroupUse(Struct, frozen=True, kw_only=True):
    """The control groups: what the kernel held the run to."""

    memory_peak_bytes: int | None
    memory_limit_bytes: int | None
    cpu_quota: float | None
    """In cores."""
    throttled_s: float | None
    throttled_percent_max: float | None
    oom_events: int | None
    oom_kills: int | None
    """Between the first and the last sample."""


class ResourceSummary(Struct, frozen=True, kw_only=True):
    """All samples. A part that was never sampled is null."""

    samples: int
    node: NodeUse | None
    process: ProcessUse | None
    cgroup: CgroupUse | None
    gpu: GpuUse | None
    energy: EnergyUse | None = None
    """By counters of processors and GPUs."""


class ResourceTally:
    """Takes the events of the stream `resources`, in any order; 24 bytes stay of a sample."""

    def __init__(self) -> None:
        self._samples = 0
        self._node, self._process, self._cgroup, self._gpu = _Scope(), _Scope(), _Scope(), GpuTally()
        self._energy, self._sent = EnergyTally(), array("d")

    def add(self, event: Event) -> None:
        """Take one event; requests are passed over."""
        if not isinstance(event, ResourceSample):
            return
        self._samples += 1
        match event.scope:
            case "node":
                self._node.add(event, (event.host,), event.cpu_percent)
                self._energy.add(event)
                if event.net_sent_bytes_per_s is not None and event.interval_s is not None:
                    self._sent.append(event.net_sent_bytes_per_s * event.interval_s)
            case "worker":
                self._process.add(event, (event.host, event.worker, event.pid), event.cpu_cores)
            case "cgroup":
                self._cgroup.add(event, (event.host,), event.cpu_cores)
            case "gpu":
                self._gpu.add(event)

    def summary(self) -> ResourceSummary:
        """The result."""
        gpu = self._gpu.summary()
        return ResourceSummary(
            samples=self._samples,
            node=_node(self._node, self._sent) if self._node.sources else None,
            process=_process(self._process) if self._process.sources else None,
            cgroup=_cgroup(self._cgroup) if self._cgroup.sources else None,
            gpu=gpu,
            energy=self._energy.summary(gpu),
        )


_GAUGES = (
    "load_1m",
    "swap_used_bytes",
    "rss_bytes",
    "peak_rss_bytes",
    "threads",
    "processes",
    "cpus",
    "memory_peak_bytes",
    "memory_total_bytes",
    "memory_used_bytes",
    "throttled_percent",
)
_COUNTERS = ("cpu_s", "read_bytes", "write_bytes", "throttled_s", "oom_events", "oom_kills")


class _Scope:
    """The samples of one scope: a load, the peaks of gauges, and the growth of counters by source."""

    def __init__(self) -> None:
        self.sources: dict[tuple[object, ...], dict[str, list[float]]] = {}
        self.fullest: tuple[int, int | None] | None = None
        self._percents, self._weights = array("d"), array("d")
        self._highest: dict[str, float] = {}

    def add(self, sample: ResourceSample, source: tuple[object, ...], percent: float | None) -> None:
        if percent is not None:
            self._percents.append(percent)
            self._weights.append(1.0 if sample.interval_s is None else sample.interval_s)
        for field in _GAUGES:
            value = getattr(sample, field)
            if value is not None and value >= self._highest.get(field, value):
                self._highest[field] = value
        if sample.memory_used_bytes is not None:
            use = (sample.memory_used_bytes, sample.memory_total_bytes)
            if self.fullest is None or (use[0], use[1] or 0) > (self.fullest[0], self.fullest[1] or 0):
                self.fullest = use
        counters = self.sources.setdefault(source, {})
        for field in _COUNTERS:
            value = getattr(sample, field)
            if value is not None:
                # Counters only grow, so the least and the greatest are the first and the last.
                seen = counters.setdefault(field, [value, value, 0])
                seen[0], seen[1], seen[2] = min(seen[0], value), max(seen[1], value), seen[2] + 1

    def load(self) -> Load:
        return load_of(self._percents, self._weights)

    def highest(self, *fields: str) -> float | None:
        return max((self._highest[field] for field in fields if field in self._highest), default=None)

    def whole(self, *fields: str) -> int | None:
        value = self.highest(*fields)
        return None if value is None else int(value)

    def growth(self, field: str) -> float | None:
        """How much a counter grew, all sources together; null where no source was sampled twice."""
        known = [counters[field] for counters in self.sources.values() if field in counters]
        grown = [last - first for first, last, samples in known if samples > 1]
        return exact_sum(grown) if grown else None

    def whole_growth(self, field: str) -> int | None:
        value = self.growth(field)
        return None if value is None else int(value)


def _node(scope: _Scope, sent: array[float]) -> NodeUse:
    sent_bytes = exact_sum(sent)
    return NodeUse(
        hosts=sorted(str(source[0]) for source in scope.sources if source[0] is not None),
        cpus=scope.highest("cpus"),
        cpu_percent=scope.load(),
        load_1m_max=scope.highest("load_1m"),
        memory_peak_bytes=scope.fullest[0] if scope.fullest else None,
        memory_total_bytes=scope.fullest[1] if scope.fullest else scope.whole("memory_total_bytes"),
        swap_peak_bytes=scope.whole("swap_used_bytes"),
        sent_bytes=round(sent_bytes) if sent and math.isfinite(sent_bytes) else None,
    )


def _process(scope: _Scope) -> ProcessUse:
    return ProcessUse(
        trees=len(scope.sources),
        cpu_cores=scope.load(),
        cpu_s=scope.growth("cpu_s"),
        peak_rss_bytes=scope.whole("peak_rss_bytes", "rss_bytes"),
        read_bytes=scope.whole_growth("read_bytes"),
        write_bytes=scope.whole_growth("write_bytes"),
        threads_max=scope.whole("threads"),
        processes_max=scope.whole("processes"),
    )


def _cgroup(scope: _Scope) -> CgroupUse:
    return CgroupUse(
        memory_peak_bytes=scope.whole("memory_peak_bytes", "memory_used_bytes"),
        memory_limit_bytes=scope.whole("memory_total_bytes"),
        cpu_quota=scope.highest("cpus"),
        throttled_s=scope.growth("throttled_s"),
        throttled_percent_max=scope.highest("throttled_percent"),
        oom_events=scope.whole_growth("oom_events"),
        oom_kills=scope.whole_growth("oom_kills"),
    )

"""CPU, memory, I/O, energy and GPUs of hosts and processes, from the samples of the run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from flightlog.core.stats import exact_sum
from flightlog.core.time import moment
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
    """Sent by all hosts together, to each other too, loopback left out; null where it was not measured."""


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


class Load(Struct, frozen=True, kw_only=True):
    """A load over time: its mean, each sample weighed by the time it covers, and its highest sample."""

    mean: float | None
    max: float | None


def load_of(values: array[float], weights: array[float]) -> Load:
    """The load of samples with the seconds that each covers; the order of samples does not matter."""
    if not values:
        return Load(mean=None, max=None)
    weight = exact_sum(weights)
    if weight > 0:
        mean = exact_sum(p * w for p, w in zip(values, weights, strict=True)) / weight
    else:
        mean = exact_sum(values) / len(values)
    return Load(mean=mean, max=max(values))


class HostEnergy(Struct, frozen=True, kw_only=True):
    """The energy of one host in joules; null where it has no counter that could be read."""

    processors_j: float | None
    gpus_j: float | None


class EnergyUse(Struct, frozen=True, kw_only=True):
    """Energy between the first and the last sample of each counter, by everyone on those hosts: node-wide.

    Disks, network, fans and power supplies have no counters, so that the meter at the wall shows more.
    """

    total_j: float
    by_host: dict[str, HostEnergy]


class EnergyTally:
    """Takes samples of nodes, in any order. Several processes may have sampled one host, each by a counter of
    its own.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Samples] = {}

    def add(self, sample: ResourceSample) -> None:
        """Take one sample; those without a counter or a time are passed over."""
        if sample.energy_j is not None and (when := moment(sample.timestamp)) is not None:
            key = (sample.host or "", sample.writer)
            self._series.setdefault(key, _Samples()).add(when, sample.energy_j)

    def summary(self, gpus: GpuUse | None) -> EnergyUse | None:
        """The result; None where no counter was sampled twice. `gpus` has the energy of the GPUs."""
        processors: dict[str, list[_Samples]] = {}
        for (host, _), series in sorted(self._series.items()):
            if series.count > 1:
                processors.setdefault(host, []).append(series)
        cards: dict[str, dict[object, float]] = {}
        for device in gpus.each if gpus is not None else ():
            if device.energy_j is not None:
                # Instances of one partitioned GPU all show the whole GPU's counter.
                of = cards.setdefault(device.host or "", {})
                key = device.uuid or device.index
                of[key] = max(of.get(key, 0.0), device.energy_j)
        by_host = {
            host: HostEnergy(
                processors_j=_together(processors[host]) if host in processors else None,
                gpus_j=exact_sum(cards[host].values()) if host in cards else None,
            )
            for host in sorted({*processors, *cards})
        }
        if not by_host:
            return None
        parts = [part for one in by_host.values() for part in (one.processors_j, one.gpus_j)]
        return EnergyUse(total_j=exact_sum(part for part in parts if part is not None), by_host=by_host)


def counted(moments: Sequence[int], joules: Sequence[float]) -> float | None:
    """What a counter has counted between its first and its last reading; None where it was read once at most.

    A counter that falls to less than half was set back to 0, as by a driver that is loaded anew, and goes on
    from there. A smaller fall is two processes that read it at one moment.
    """
    if len(joules) < 2:
        return None
    ordered = [value for _, value in sorted(zip(moments, joules, strict=True))]
    found: list[float] = []
    since = last = ordered[0]
    for value in ordered:
        if value < last / 2:
            found.append(last - since)
            since = last = 0.0
        last = max(last, value)
    return exact_sum([*found, last - since])


class _Samples:
    """One counter as one process saw it; it only grows, so the least and the greatest are the first and the
    last.
    """

    def __init__(self) -> None:
        self.count = 0
        self.since = self.until = 0
        self._least = self._most = 0.0

    def add(self, when: int, joules: float) -> None:
        if not self.count:
            self.since, self.until, self._least, self._most = when, when, joules, joules
        self.count += 1
        self.since, self.until = min(self.since, when), max(self.until, when)
        self._least, self._most = min(self._least, joules), max(self._most, joules)

    def grown(self) -> float:
        return self._most - self._least


def _together(series: list[_Samples]) -> float:
    """Energy that several processes measured at the same time counts once.

    Of a process that measured for longer than the others, the part after them counts, in proportion to time.
    """
    found: list[float] = []
    seen_until: int | None = None
    for one in sorted(series, key=lambda one: (one.since, -one.until, -one.grown())):
        since, until = one.since, one.until
        if seen_until is None or since >= seen_until:
            found.append(one.grown())
        elif until > seen_until:
            found.append(one.grown() * ((until - seen_until) / (until - since)))
        seen_until = until if seen_until is None else max(seen_until, until)
    return exact_sum(found)


HELD_BACK = (
    "power_cap",
    "power_brake",
    "thermal_hardware",
    "thermal_software",
    "hardware_slowdown",
    "board_limit",
    "reliability",
)
"""Throttling; other reasons are clock limits set by the user."""


class GpuDeviceUse(Struct, frozen=True, kw_only=True):
    """One GPU, or one instance of a partitioned GPU."""

    host: str | None
    index: int | None
    uuid: str | None
    mig: str | None
    name: str | None
    gpu_percent: Load
    """Share of time a kernel of anyone ran, 0 to 100."""
    memory_peak_bytes: int | None
    """By everyone on the device."""
    memory_total_bytes: int | None
    process_memory_peak_bytes: int | None
    """By the run's own processes; null where the driver could not tell."""
    power_max_w: float | None
    energy_j: float | None
    """Between the first and the last sample, by everyone."""
    temperature_max_c: float | None
    throttled_percent: dict[str, float]
    """Share of samples in which the clocks were held back, by reason; only reasons that were seen."""
    ecc_uncorrected: int | None
    """Memory errors between the first and the last sample that could not be corrected."""
    pcie_received_max_bytes_per_s: float | None
    pcie_sent_max_bytes_per_s: float | None


class GpuUse(Struct, frozen=True, kw_only=True):
    """The GPUs. Shares of several devices are never added up: the load is over all samples, peaks are of one
    device.
    """

    devices: int
    gpu_percent: Load
    memory_peak_bytes: int | None
    """By everyone, on the device where that was most."""
    memory_total_bytes: int | None
    """Of that device."""
    process_memory_peak_bytes: int | None
    """By the run's own processes, on the device where that was most."""
    power_max_w: float | None
    """Of one device."""
    energy_j: float | None
    """All devices together, between the first and the last sample of each."""
    temperature_max_c: float | None
    each: list[GpuDeviceUse]
    """The busiest first."""


class GpuTally:
    """Takes the samples of scope `gpu`, in any order; 32 bytes stay of a sample."""

    def __init__(self) -> None:
        self._devices: dict[tuple[object, ...], _Device] = {}

    def add(self, sample: ResourceSample) -> None:
        """Take one sample."""
        key = (sample.host, sample.gpu_uuid, sample.gpu_index, sample.gpu_mig)
        self._devices.setdefault(key, _Device()).add(sample)

    def summary(self) -> GpuUse | None:
        """The result; None without samples."""
        if not self._devices:
            return None
        each = sorted((device.summary() for device in self._devices.values()), key=_busiest_first)
        values, weights = array("d"), array("d")
        for device in self._devices.values():
            values.extend(device.values)
            weights.extend(device.weights)
        fullest = max(each, key=lambda one: (one.memory_peak_bytes or 0, one.memory_total_bytes or 0))
        energies = [one.energy_j for one in each if one.energy_j is not None]
        return GpuUse(
            devices=len(each),
            gpu_percent=load_of(values, weights),
            memory_peak_bytes=fullest.memory_peak_bytes,
            memory_total_bytes=fullest.memory_total_bytes,
            process_memory_peak_bytes=_largest(one.process_memory_peak_bytes for one in each),
            power_max_w=_largest(one.power_max_w for one in each),
            energy_j=exact_sum(energies) if energies else None,
            temperature_max_c=_largest(one.temperature_max_c for one in each),
            each=each,
        )


_PEAKS = (
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_process_memory_bytes",
    "gpu_power_w",
    "gpu_temperature_c",
    "gpu_pcie_received_bytes_per_s",
    "gpu_pcie_sent_bytes_per_s",
)


class _Device:
    """The samples of one device."""

    def __init__(self) -> None:
        self.values, self.weights = array("d"), array("d")
        self._known: tuple[str | None, int | None, str | None, str | None] = (None, None, None, None)
        self._name: str | None = None
        self._peaks: dict[str, float] = {}
        self._uncorrected: list[int] = []
        self._energy: tuple[array[int], array[float]] = (array("q"), array("d"))
        self._looks = 0
        self._reasons: dict[str, int] = {}

    def add(self, sample: ResourceSample) -> None:
        self._known = (sample.host, sample.gpu_index, sample.gpu_uuid, sample.gpu_mig)
        if sample.gpu_name is not None:
            self._name = max(sample.gpu_name, self._name or "")
        if sample.gpu_percent is not None:
            self.values.append(sample.gpu_percent)
            self.weights.append(1.0 if sample.interval_s is None else sample.interval_s)
        for field in _PEAKS:
            value = getattr(sample, field)
            if value is not None and value >= self._peaks.get(field, value):
                self._peaks[field] = value
        if sample.gpu_ecc_uncorrected is not None:
            # A counter only grows, so the least and the greatest are the first and the last.
            seen = sorted([*self._uncorrected, sample.gpu_ecc_uncorrected])
            self._uncorrected = [seen[0], seen[-1]] if len(seen) > 1 else seen
        if sample.gpu_energy_j is not None:
            self._energy[0].append(moment(sample.timestamp) or 0)
            self._energy[1].append(sample.gpu_energy_j)
        if sample.gpu_throttle_reasons is not None:
            self._looks += 1
            for reason in set(sample.gpu_throttle_reasons):
                self._reasons[reason] = self._reasons.get(reason, 0) + 1

    def summary(self) -> GpuDeviceUse:
        host, index, uuid, mig = self._known
        return GpuDeviceUse(
            host=host,
            index=index,
            uuid=uuid,
            mig=mig,
            name=self._name,
            gpu_percent=load_of(self.values, self.weights),
            memory_peak_bytes=self._whole("gpu_memory_used_bytes"),
            memory_total_bytes=self._whole("gpu_memory_total_bytes"),
            process_memory_peak_bytes=self._whole("gpu_process_memory_bytes"),
            power_max_w=self._peaks.get("gpu_power_w"),
            energy_j=counted(*self._energy),
            temperature_max_c=self._peaks.get("gpu_temperature_c"),
            throttled_percent={
                reason: 100 * self._reasons[reason] / self._looks
                for reason in HELD_BACK
                if self._reasons.get(reason)
            },
            ecc_uncorrected=self._uncorrected[1] - self._uncorrected[0] if self._uncorrected[1:] else None,
            pcie_received_max_bytes_per_s=self._peaks.get("gpu_pcie_received_bytes_per_s"),
            pcie_sent_max_bytes_per_s=self._peaks.get("gpu_pcie_sent_bytes_per_s"),
        )

    def _whole(self, field: str) -> int | None:
        value = self._peaks.get(field)
        return None if value is None else int(value)


def _busiest_first(one: GpuDeviceUse) -> tuple[float, str, int, str, str]:
    mean = one.gpu_percent.mean
    return (1.0 if mean is None else -mean, one.host or "", one.index or 0, one.uuid or "", one.mig or "")


N = TypeVar("N", int, float)


def _largest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)

"""CPU, memory, I/O, energy and GPUs of hosts and processes, from the samples of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from flightlog.analyze.report.metrics import total_sql
from flightlog.analyze.tallies import copied, grouped
from flightlog.core.stats import exact_sum
from flightlog.events import ResourceSample
from flightlog.store.tables.samples import SAMPLES_BY_TREE

if TYPE_CHECKING:
    from flightlog.store.tables.run_tables import RunTables


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


_PEAKS = {
    "load_1m_max": "load_1m",
    "swap_peak_bytes": "swap_used_bytes",
    "peak_rss_bytes": "greatest(peak_rss_bytes, rss_bytes)",
    "threads_max": "threads",
    "processes_max": "processes",
    "cpus": "cpus",
    "cpu_quota": "cpus",
    "memory_peak_bytes": "greatest(memory_peak_bytes, memory_used_bytes)",
    "memory_limit_bytes": "memory_total_bytes",
    "throttled_percent_max": "throttled_percent",
}
"""Fields of a scope, by the gauge whose highest sample each is."""
_SECONDS = ("cpu_s", "throttled_s")
_COUNTS = ("read_bytes", "write_bytes", "oom_events", "oom_kills")


def _grown(column: str) -> str:
    """How much a counter grew; null where it was read once at most. Counters only grow, so the least and the
    greatest are the first and the last.
    """
    return f"CASE WHEN count({column}) > 1 THEN max({column}) - min({column}) END"


def _highest(fields: Mapping[str, str]) -> str:
    """A select list: the highest value of each expression, by the name of its field."""
    return ", ".join(f"max({value}) AS {name}" for name, value in fields.items())


def _load_sql(column: str) -> str:
    """A select list of a load, for `_load`; a first sample, which covers no known time, weighs a second."""
    weight = "coalesce(interval_s, 1)"
    return f"""
        {total_sql(f"({column} * {weight})")} AS weighed,
        {total_sql(weight, f"{column} IS NOT NULL")} AS weight,
        {total_sql(column)} / count({column}) AS mean, max({column}) AS highest
    """


_BY_SCOPE = f"""
WITH samples AS (
    SELECT *, CASE scope WHEN 'node' THEN cpu_percent WHEN 'gpu' THEN gpu_percent ELSE cpu_cores END AS load
    FROM ({SAMPLES_BY_TREE})
), sources AS (
    SELECT scope, host, CASE scope WHEN 'worker' THEN coalesce(CAST(pid AS VARCHAR), worker) END AS tree,
        {", ".join(f"{_grown(name)} AS {name}" for name in (*_SECONDS, *_COUNTS))}
    FROM samples GROUP BY ALL
), grown AS (
    SELECT scope, count(*) AS trees,
        coalesce(list(DISTINCT host ORDER BY host) FILTER (host IS NOT NULL), []) AS hosts,
        {", ".join(f"{total_sql(name)} AS {name}" for name in _SECONDS)},
        {", ".join(f"CAST(sum({name}) AS HUGEINT) AS {name}" for name in _COUNTS)}
    FROM sources GROUP BY scope
), seen AS (
    SELECT scope, count(*) AS samples, {_highest(_PEAKS)},
        CASE WHEN count(memory_used_bytes) = 0 THEN max(memory_total_bytes)
            ELSE arg_max_null(memory_total_bytes, row(memory_used_bytes, coalesce(memory_total_bytes, 0)))
                FILTER (memory_used_bytes IS NOT NULL) END AS memory_total_bytes,
        CAST(round_even({total_sql("(net_sent_bytes_per_s * interval_s)")}, 0) AS HUGEINT) AS sent_bytes,
        {_load_sql("load")}
    FROM samples GROUP BY scope
)
SELECT * FROM seen JOIN grown USING (scope)
"""  # noqa: S608 - constants
"""One row per scope: the peaks of gauges, the load, and what counters of all its sources grew by."""


def resource_summary(tables: RunTables) -> ResourceSummary:
    """All samples, from `resources`."""
    if ResourceSample.stream not in tables.streams:
        return ResourceSummary(samples=0, node=None, process=None, cgroup=None, gpu=None)
    scopes = {row["scope"]: row for row in tables.records(_BY_SCOPE)}
    node, process, cgroup, gpu = (scopes.get(scope) for scope in ("node", "worker", "cgroup", "gpu"))
    gpus = None if gpu is None else _gpus(tables, _load(gpu))
    return ResourceSummary(
        samples=sum(row["samples"] for row in scopes.values()),
        node=None if node is None else copied(NodeUse, node, cpu_percent=_load(node)),
        process=None if process is None else copied(ProcessUse, process, cpu_cores=_load(process)),
        cgroup=None if cgroup is None else copied(CgroupUse, cgroup),
        gpu=gpus,
        energy=_energy(tables, gpus),
    )


class Load(Struct, frozen=True, kw_only=True):
    """A load over time: its mean, each sample weighed by the time it covers, and its highest sample."""

    mean: float | None
    max: float | None


def _load(row: Mapping[str, Any]) -> Load:
    """The load, of what `_load_sql` has found."""
    mean = row["weighed"] / row["weight"] if row["weight"] else row["mean"]
    return Load(mean=mean, max=row["highest"])


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


class _Counter(NamedTuple):
    """A counter of one host as one process saw it, between its first and its last sample."""

    since: int
    until: int
    grown: float


_COUNTERS = """
SELECT coalesce(host, ''), min(at_ns("timestamp")), max(at_ns("timestamp")), max(energy_j) - min(energy_j)
FROM resources
WHERE event = 'resource_sample' AND scope = 'node' AND energy_j IS NOT NULL AND at_ns("timestamp") IS NOT NULL
GROUP BY host, writer HAVING count(*) > 1 ORDER BY ALL
"""
"""Several processes may have sampled one host, each by a counter of its own."""


def _energy(tables: RunTables, gpus: GpuUse | None) -> EnergyUse | None:
    """The energy of all hosts; None where no counter was sampled twice. `gpus` has that of the GPUs."""
    processors = grouped((host, _Counter(*counter)) for host, *counter in tables.rows(_COUNTERS))
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


def counted(joules: Sequence[float]) -> float | None:
    """What a counter has counted over its readings in order; None where it was read once at most.

    A counter that falls to less than half was set back to 0, as by a driver that is loaded anew, and goes on
    from there. A smaller fall is two processes that read it at one moment.
    """
    if len(joules) < 2:
        return None
    found: list[float] = []
    since = last = joules[0]
    for value in joules:
        if value < last / 2:
            found.append(last - since)
            since = last = 0.0
        last = max(last, value)
    return exact_sum([*found, last - since])


def _together(counters: list[_Counter]) -> float:
    """Energy that several processes measured at the same time counts once.

    Of a process that measured for longer than the others, the part after them counts, in proportion to time.
    """
    found: list[float] = []
    seen_until: int | None = None
    for since, until, grown in sorted(counters, key=lambda one: (one.since, -one.until, -one.grown)):
        if seen_until is None or since >= seen_until:
            found.append(grown)
        elif until > seen_until:
            found.append(grown * ((until - seen_until) / (until - since)))
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


class GpuFigures(Struct, frozen=True, kw_only=True):
    """What is measured of one GPU, or of several: the load is over all samples, peaks are of one device."""

    gpu_percent: Load
    """Share of time a kernel of anyone ran, 0 to 100."""
    memory_peak_bytes: int | None
    """By everyone, on the device where that was most."""
    memory_total_bytes: int | None
    """Of that device."""
    process_memory_peak_bytes: int | None
    """By the run's own processes, on the device where that was most; null where the driver could not tell."""
    power_max_w: float | None
    """Of one device."""
    energy_j: float | None
    """All devices together, between the first and the last sample of each, by everyone."""
    temperature_max_c: float | None


class GpuDeviceUse(GpuFigures, frozen=True, kw_only=True):
    """One GPU, or one instance of a partitioned GPU."""

    host: str | None
    index: int | None
    uuid: str | None
    mig: str | None
    name: str | None
    throttled_percent: dict[str, float]
    """Share of samples in which the clocks were held back, by reason; only reasons that were seen."""
    ecc_uncorrected: int | None
    """Memory errors between the first and the last sample that could not be corrected."""
    pcie_received_max_bytes_per_s: float | None
    pcie_sent_max_bytes_per_s: float | None


class GpuUse(GpuFigures, frozen=True, kw_only=True):
    """The GPUs. Shares of several devices are never added up."""

    devices: int
    each: list[GpuDeviceUse]
    """The busiest first."""


_DEVICE_PEAKS = {
    "memory_peak_bytes": "gpu_memory_used_bytes",
    "memory_total_bytes": "gpu_memory_total_bytes",
    "process_memory_peak_bytes": "gpu_process_memory_bytes",
    "power_max_w": "gpu_power_w",
    "temperature_max_c": "gpu_temperature_c",
    "pcie_received_max_bytes_per_s": "gpu_pcie_received_bytes_per_s",
    "pcie_sent_max_bytes_per_s": "gpu_pcie_sent_bytes_per_s",
}
_SEEN = "100 * avg(list_contains(gpu_throttle_reasons, '{}')::INT)"
_DEVICES = f"""
SELECT host, gpu_index AS index, gpu_uuid AS uuid, gpu_mig AS mig, max(gpu_name) AS name,
    {_highest(_DEVICE_PEAKS)},
    {_grown("gpu_ecc_uncorrected")} AS ecc_uncorrected, {_load_sql("gpu_percent")},
    list(gpu_energy_j ORDER BY "timestamp", gpu_energy_j) FILTER (gpu_energy_j IS NOT NULL) AS joules,
    {{{", ".join(f"{one}: {_SEEN.format(one)}" for one in HELD_BACK)}}} AS throttled
FROM resources WHERE event = 'resource_sample' AND scope = 'gpu' GROUP BY ALL
"""  # noqa: S608 - constants


_OF_ONE = ("process_memory_peak_bytes", "power_max_w", "temperature_max_c")
"""Figures of all GPUs that are the largest of one."""


def _gpus(tables: RunTables, load: Load) -> GpuUse:
    """The GPUs, which have this load together."""
    each = sorted((_device(row) for row in tables.records(_DEVICES)), key=_busiest_first)
    fullest = max(each, key=lambda one: (one.memory_peak_bytes or 0, one.memory_total_bytes or 0))
    energies = [one.energy_j for one in each if one.energy_j is not None]
    return GpuUse(
        devices=len(each),
        gpu_percent=load,
        memory_peak_bytes=fullest.memory_peak_bytes,
        memory_total_bytes=fullest.memory_total_bytes,
        **{name: _largest(getattr(one, name) for one in each) for name in _OF_ONE},
        energy_j=exact_sum(energies) if energies else None,
        each=each,
    )


def _device(row: Mapping[str, Any]) -> GpuDeviceUse:
    return copied(
        GpuDeviceUse,
        row,
        gpu_percent=_load(row),
        energy_j=counted(row["joules"] or ()),
        throttled_percent={reason: share for reason, share in row["throttled"].items() if share},
    )


def _busiest_first(one: GpuDeviceUse) -> tuple[float, str, int, str, str]:
    mean = one.gpu_percent.mean
    return (1.0 if mean is None else -mean, one.host or "", one.index or 0, one.uuid or "", one.mig or "")


N = TypeVar("N", int, float)


def _largest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)

"""What the GPUs did, device by device, as their driver told the sampler."""

from __future__ import annotations

from array import array

from msgspec import Struct

from flightlog.analyze.distribution import exact_sum
from flightlog.analyze.energy import counted
from flightlog.analyze.load import Load, load_of
from flightlog.analyze.moments import moment
from flightlog.events import ResourceSample

HELD_BACK = (
    "power_cap",
    "power_brake",
    "thermal_hardware",
    "thermal_software",
    "hardware_slowdown",
    "board_limit",
    "reliability",
)
"""Reasons that take speed away unasked; the others are clocks that somebody has set."""


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
            process_memory_peak_bytes=_largest_int([one.process_memory_peak_bytes for one in each]),
            power_max_w=_largest([one.power_max_w for one in each]),
            energy_j=exact_sum(energies) if energies else None,
            temperature_max_c=_largest([one.temperature_max_c for one in each]),
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
_COUNTERS = ("gpu_ecc_uncorrected",)


class _Device:
    """The samples of one device."""

    def __init__(self) -> None:
        self.values, self.weights = array("d"), array("d")
        self._known: tuple[str | None, int | None, str | None, str | None] = (None, None, None, None)
        self._name: str | None = None
        self._peaks: dict[str, float] = {}
        self._counters: dict[str, tuple[float, float, int]] = {}
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
        for field in _COUNTERS:
            value = getattr(sample, field)
            if value is not None:
                # Counters only grow, so the least and the greatest are the first and the last.
                least, most, times = self._counters.get(field, (value, value, 0))
                self._counters[field] = (min(least, value), max(most, value), times + 1)
        if sample.gpu_energy_j is not None:
            self._energy[0].append(moment(sample.timestamp) or 0)
            self._energy[1].append(sample.gpu_energy_j)
        if sample.gpu_throttle_reasons is not None:
            self._looks += 1
            for reason in set(sample.gpu_throttle_reasons):
                self._reasons[reason] = self._reasons.get(reason, 0) + 1

    def summary(self) -> GpuDeviceUse:
        host, index, uuid, mig = self._known
        errors = self._growth("gpu_ecc_uncorrected")
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
            ecc_uncorrected=None if errors is None else int(errors),
            pcie_received_max_bytes_per_s=self._peaks.get("gpu_pcie_received_bytes_per_s"),
            pcie_sent_max_bytes_per_s=self._peaks.get("gpu_pcie_sent_bytes_per_s"),
        )

    def _whole(self, field: str) -> int | None:
        value = self._peaks.get(field)
        return None if value is None else int(value)

    def _growth(self, field: str) -> float | None:
        least, most, times = self._counters.get(field, (0, 0, 0))
        return most - least if times > 1 else None


def _busiest_first(one: GpuDeviceUse) -> tuple[float, str, int, str, str]:
    mean = one.gpu_percent.mean
    return (1.0 if mean is None else -mean, one.host or "", one.index or 0, one.uuid or "", one.mig or "")


def _largest(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _largest_int(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)

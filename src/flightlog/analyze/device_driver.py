"""What the driver said of the GPUs, from the run's resource samples."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.device_results import GpuSamples
from flightlog.events import ResourceSample


class _Gpu:
    def __init__(self) -> None:
        self.samples = 0
        self.highest: dict[str, float] = {}
        self.sums = {"gpu_percent": [0.0, 0.0], "gpu_power_w": [0.0, 0.0]}
        """By figure: values times the seconds they cover, and the seconds; a first sample covers one."""

    def add(self, sample: ResourceSample) -> None:
        self.samples += 1
        for name in ("gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_percent", "gpu_power_w"):
            value = getattr(sample, name)
            if value is None:
                continue
            self.highest[name] = max(value, self.highest.get(name, value))
            if name in self.sums:
                weight = 1.0 if sample.interval_s is None else sample.interval_s
                self.sums[name][0] += value * weight
                self.sums[name][1] += weight

    def mean(self, name: str) -> float | None:
        weighed, weight = self.sums[name]
        return weighed / weight if weight > 0 else None

    def whole(self, name: str) -> int | None:
        return int(self.highest[name]) if name in self.highest else None


def gpu_samples(events: Iterable[object]) -> list[GpuSamples]:
    """Every GPU, or instance of one, that was sampled, by host and index; what the driver did not say is
    None.
    """
    gpus: dict[tuple[str | None, int | None, str | None, str | None], _Gpu] = {}
    for event in events:
        if isinstance(event, ResourceSample) and event.scope == "gpu":
            key = (event.host, event.gpu_index, event.gpu_uuid, event.gpu_mig)
            gpus.setdefault(key, _Gpu()).add(event)
    order = sorted(
        gpus, key=lambda key: (key[0] or "", -1 if key[1] is None else key[1], key[2] or "", key[3] or "")
    )
    return [
        GpuSamples(
            host=host,
            gpu_index=index,
            gpu_uuid=uuid,
            gpu_mig=mig,
            samples=(gpu := gpus[host, index, uuid, mig]).samples,
            memory_peak_bytes=gpu.whole("gpu_memory_used_bytes"),
            memory_total_bytes=gpu.whole("gpu_memory_total_bytes"),
            gpu_percent_mean=gpu.mean("gpu_percent"),
            gpu_percent_max=gpu.highest.get("gpu_percent"),
            power_mean_w=gpu.mean("gpu_power_w"),
            power_max_w=gpu.highest.get("gpu_power_w"),
        )
        for host, index, uuid, mig in order
    ]

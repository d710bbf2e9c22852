"""The newest sample of each node and GPU, in Prometheus's base units."""

from __future__ import annotations

from flightlog.events import ResourceSample
from flightlog.export.prometheus.figures import Gauges
from flightlog.export.prometheus.labels import label
from flightlog.store.liveness import unix_time

NODE = {
    "cpu_ratio": ("cpu_percent", 0.01),
    "cpus": ("cpus", 1.0),
    "load1": ("load_1m", 1.0),
    "memory_used_bytes": ("memory_used_bytes", 1.0),
    "memory_size_bytes": ("memory_total_bytes", 1.0),
    "swap_used_bytes": ("swap_used_bytes", 1.0),
    "disk_read_bytes_per_second": ("disk_read_bytes_per_s", 1.0),
    "disk_written_bytes_per_second": ("disk_write_bytes_per_s", 1.0),
    "network_received_bytes_per_second": ("net_recv_bytes_per_s", 1.0),
    "network_sent_bytes_per_second": ("net_sent_bytes_per_s", 1.0),
}
GPU = {
    "utilization_ratio": ("gpu_percent", 0.01),
    "memory_used_bytes": ("gpu_memory_used_bytes", 1.0),
    "memory_size_bytes": ("gpu_memory_total_bytes", 1.0),
    "process_memory_bytes": ("gpu_process_memory_bytes", 1.0),
    "power_watts": ("gpu_power_w", 1.0),
    "temperature_celsius": ("gpu_temperature_c", 1.0),
}
"""Name of the metric, less its beginning; the field it is from, and by what that is multiplied."""


def newest(samples: dict[tuple[str, str | None], ResourceSample], sample: ResourceSample) -> None:
    """Keep a sample in place of an older one of the same node or GPU; one without a host is of nowhere."""
    if sample.host is None:
        return
    key = (sample.host, _gpu(sample))
    known = samples.get(key)
    if known is None or sample.timestamp >= known.timestamp:
        samples[key] = sample


def gauges_of(sample: ResourceSample) -> Gauges:
    """A sample as gauges; what it does not say is left out."""
    gpu = _gpu(sample)
    return Gauges(
        host=label(sample.host),
        gpu=gpu,
        gpu_name=None if sample.gpu_name is None else label(sample.gpu_name),
        at_s=unix_time(sample.timestamp) or 0.0,
        values={
            name: value * factor
            for name, (field, factor) in (NODE if gpu is None else GPU).items()
            if (value := getattr(sample, field)) is not None
        },
    )


def _gpu(sample: ResourceSample) -> str | None:
    if sample.scope != "gpu":
        return None
    index = "unknown" if sample.gpu_index is None else str(sample.gpu_index)
    if sample.gpu_mig is not None:
        return label(f"{index}/{sample.gpu_mig}")
    return index if sample.gpu_index is not None or sample.gpu_uuid is None else label(sample.gpu_uuid)

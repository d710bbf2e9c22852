"""Resources that were used (samples) and requested."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from flightlog.events.base import (
    Bytes,
    BytesPerSecond,
    Celsius,
    Event,
    Joules,
    Megahertz,
    Percent,
    Seconds,
    Watts,
    doc,
    register,
)


@register
class ResourceSample(Event, kw_only=True, tag="resource_sample"):
    """A measurement of a node, a cgroup, a worker's process tree, a task or a GPU, at one moment.

    Rates cover `interval_s`, the time since the sampler's previous sample; the first sample has none.
    """

    stream: ClassVar[str] = "resources"

    scope: Annotated[Literal["node", "cgroup", "worker", "task", "gpu"], doc("what was measured")]
    host: Annotated[str | None, doc("where")]
    cpu_percent: Annotated[Percent | None, doc("share of the `cpus` in use over the interval, 0 to 100")]
    worker: Annotated[str | None, doc("worker, in scope `worker`")] = None
    pid: Annotated[int | None, doc("root of the process tree, in scope `worker` and `task`")] = None
    task_id: Annotated[str | None, doc("task, in scope `task`")] = None
    interval_s: Annotated[Seconds | None, doc("time the rates cover; null in a first sample")] = None
    final: Annotated[bool, doc("the last sample of this sampler")] = False
    cpu_s: Annotated[Seconds | None, doc("CPU time so far, exited children included")] = None
    cpu_cores: Annotated[float | None, doc("cores in use on average over the interval")] = None
    cpus: Annotated[
        float | None,
        doc("cores there are to use: of the node, of the processes' affinity, of the cgroup's quota"),
    ] = None
    load_1m: Annotated[float | None, doc("load average over one minute")] = None
    memory_used_bytes: Annotated[Bytes | None, doc("memory in use, reclaimable cache not counted")] = None
    memory_total_bytes: Annotated[Bytes | None, doc("memory there is, or the cgroup's limit")] = None
    memory_peak_bytes: Annotated[
        Bytes | None, doc("the kernel's own high-water mark, where it keeps one")
    ] = None
    swap_used_bytes: Annotated[Bytes | None, doc("swap in use")] = None
    rss_bytes: Annotated[Bytes | None, doc("resident memory, summed over the process tree")] = None
    peak_rss_bytes: Annotated[Bytes | None, doc("largest rss_bytes seen by this sampler")] = None
    managed_bytes: Annotated[
        Bytes | None,
        doc("results that the engine keeps on the worker, in memory and on disk, by its own count"),
    ] = None
    spilled_bytes: Annotated[Bytes | None, doc("those of them that it has moved to disk, as stored")] = None
    processes: Annotated[int | None, doc("processes in the tree")] = None
    threads: Annotated[int | None, doc("threads in the tree")] = None
    disk_read_bytes_per_s: Annotated[BytesPerSecond | None, doc("read from storage")] = None
    disk_write_bytes_per_s: Annotated[BytesPerSecond | None, doc("written to storage")] = None
    read_bytes: Annotated[Bytes | None, doc("read from storage so far")] = None
    write_bytes: Annotated[Bytes | None, doc("written to storage so far")] = None
    net_recv_bytes_per_s: Annotated[BytesPerSecond | None, doc("received, loopback not counted")] = None
    net_sent_bytes_per_s: Annotated[BytesPerSecond | None, doc("sent, loopback not counted")] = None
    energy_j: Annotated[
        Joules | None,
        doc(
            "energy the processors and their memory used, by everyone on the node: a counter of this "
            "sampler, whose differences count; null where the kernel has or shows none"
        ),
    ] = None
    throttled_s: Annotated[Seconds | None, doc("time the cgroup was held back by its CPU quota, so far")] = (
        None
    )
    throttled_percent: Annotated[Percent | None, doc("share of CPU periods throttled in the interval")] = None
    oom_events: Annotated[int | None, doc("times the cgroup hit its memory limit, so far")] = None
    oom_kills: Annotated[int | None, doc("processes of the cgroup killed for memory, so far")] = None
    gpu_index: Annotated[int | None, doc("index of the GPU on its host")] = None
    gpu_uuid: Annotated[str | None, doc("UUID of the GPU")] = None
    gpu_name: Annotated[str | None, doc("what the GPU is called")] = None
    gpu_mig: Annotated[str | None, doc("UUID of the instance, where it is one of a partitioned GPU")] = None
    gpu_percent: Annotated[
        Percent | None, doc("share of time a kernel ran, over the driver's own last period of up to a second")
    ] = None
    gpu_memory_used_bytes: Annotated[Bytes | None, doc("device memory in use by everyone")] = None
    gpu_memory_free_bytes: Annotated[Bytes | None, doc("device memory that is free")] = None
    gpu_memory_total_bytes: Annotated[Bytes | None, doc("device memory there is")] = None
    gpu_process_memory_bytes: Annotated[
        Bytes | None,
        doc(
            "device memory in use by the run's process tree; null where the driver cannot tell, "
            "as in containers"
        ),
    ] = None
    gpu_memory_bus_percent: Annotated[
        Percent | None, doc("share of time the memory bus was busy; not fill")
    ] = None
    gpu_power_w: Annotated[Watts | None, doc("power drawn")] = None
    gpu_energy_j: Annotated[Joules | None, doc("energy used since the driver was loaded: a counter")] = None
    gpu_temperature_c: Annotated[Celsius | None, doc("temperature")] = None
    gpu_clock_mhz: Annotated[Megahertz | None, doc("clock of the processors")] = None
    gpu_memory_clock_mhz: Annotated[Megahertz | None, doc("clock of the memory")] = None
    gpu_throttle_reasons: Annotated[
        list[str] | None,
        doc(
            "what holds the clocks back, such as `power_cap` or `thermal_hardware`; empty where nothing does"
        ),
    ] = None
    gpu_ecc_corrected: Annotated[int | None, doc("memory errors corrected since the driver was loaded")] = (
        None
    )
    gpu_ecc_uncorrected: Annotated[
        int | None, doc("memory errors not corrected since the driver was loaded")
    ] = None
    gpu_pcie_sent_bytes_per_s: Annotated[BytesPerSecond | None, doc("sent by the GPU to the host")] = None
    gpu_pcie_received_bytes_per_s: Annotated[
        BytesPerSecond | None, doc("received by the GPU from the host")
    ] = None


@register
class ResourceRequest(Event, kw_only=True, tag="resource_request"):
    """What a task or component asked for."""

    stream: ClassVar[str] = "resources"

    task: Annotated[str | None, doc("task name the request is for")]
    cpus: Annotated[float | None, doc("CPUs")]
    memory_bytes: Annotated[Bytes | None, doc("memory")]
    component: Annotated[str | None, doc("component the request is for")] = None
    gpus: Annotated[float | None, doc("GPUs")] = None
    walltime_s: Annotated[Seconds | None, doc("wall time")] = None
    task_id: Annotated[str | None, doc("the one submission it is for; null means all of that name")] = None

"""Device memory, in the field's schema v3: allocator and device counters of one process on one device."""

from __future__ import annotations

from typing import Annotated, ClassVar

from flightlog.events.base import Bytes, Event, Json, Milliseconds, Nanoseconds, doc, register


@register
class DeviceMemory(Event, kw_only=True, tag="device_memory"):
    """Allocator and device memory counters at one moment (device telemetry schema v3)."""

    stream: ClassVar[str] = "devices"

    schema_version: Annotated[int, doc("version of the device schema: 3")]
    session_id: Annotated[str, doc("one collector's life in one process")]
    timestamp_ns: Annotated[Nanoseconds, doc("Unix time")]
    event_type: Annotated[str, doc("what led to the record: sample, allocation, start, stop, …")]
    collector: Annotated[str, doc("what counted, such as `flightlog.cuda`")]
    sampling_interval_ms: Annotated[Milliseconds, doc("interval between samples")]
    pid: Annotated[int, doc("process; -1 if unknown")]
    host: Annotated[str, doc("host")]
    device_id: Annotated[int, doc("device index; -1 if unknown")]
    allocator_allocated_bytes: Annotated[Bytes, doc("handed out by the framework's allocator")]
    allocator_reserved_bytes: Annotated[Bytes, doc("held by the framework's allocator")]
    allocator_active_bytes: Annotated[Bytes | None, doc("in active blocks")]
    allocator_inactive_bytes: Annotated[Bytes | None, doc("in inactive blocks")]
    allocator_change_bytes: Annotated[Bytes, doc("change since the previous event")]
    device_used_bytes: Annotated[Bytes, doc("in use on the device, by everyone")]
    device_free_bytes: Annotated[Bytes | None, doc("free on the device")]
    device_total_bytes: Annotated[Bytes | None, doc("there is on the device")]
    context: Annotated[str | None, doc("what the code was doing")]
    metadata: Annotated[Json, doc("anything else the collector knows")]
    job_id: Annotated[str | None, doc("job of the batch system or launcher")] = None
    rank: Annotated[int, doc("rank among all processes of the job")] = 0
    local_rank: Annotated[int, doc("rank on this host")] = 0
    world_size: Annotated[int, doc("number of ranks")] = 1

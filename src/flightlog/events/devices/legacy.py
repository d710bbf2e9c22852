"""Records from before the schema had versions, as trackers wrote them: their fields under today's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flightlog.events.devices.event import OPTIONAL_FIELDS
from flightlog.events.devices.identity import resolve_distributed_identity
from flightlog.events.devices.values import any_text, optional_whole, text, whole

UNKNOWN_PID = -1
UNKNOWN_HOST = "unknown"

_COLLECTORS = {
    "cuda": "stormlog.cuda_tracker",
    "rocm": "stormlog.rocm_tracker",
    "mps": "stormlog.mps_tracker",
    "cpu": "stormlog.cpu_tracker",
}
_TENSORFLOW = "stormlog.tensorflow.memory_tracker"
_TOTALS = ("total_memory", "device_total", "total_bytes")

Record = Mapping[str, Any]


def fields_of_legacy_record(
    record: Record, *, default_collector: str, default_sampling_interval_ms: int
) -> dict[str, Any]:
    """The fields of v3, but for `schema_version` and `session_id`. What was not recorded has its default:

    process and host are -1 and `unknown`, the device is read out of `device`, reserved and used bytes are
    those allocated, active, inactive, free and total bytes are unknown. `metadata_…` fields become metadata;
    what they say of job and ranks becomes the event's. Raises ValueError for values that cannot be, and for a
    record without a time. Ranges are not checked here.
    """
    metadata = _metadata(record)
    fields: dict[str, Any] = {"timestamp_ns": _timestamp_ns(record), "device_id": _device_id(record)}
    allocated = fields["allocator_allocated_bytes"] = _allocated(record)
    fields["allocator_reserved_bytes"] = _first(
        record, ("allocator_reserved_bytes", "memory_reserved"), allocated
    )
    fields["allocator_change_bytes"] = _first(record, ("allocator_change_bytes", "memory_change"), 0)
    for name in ("allocator_active_bytes", "allocator_inactive_bytes"):
        fields[name] = optional_whole(record.get(name), name)
    used = fields["device_used_bytes"] = _first(record, ("device_used_bytes",), allocated)
    total = fields["device_total_bytes"] = _total(record, metadata)
    fields["device_free_bytes"] = _free(record, used, total)
    fields["event_type"] = text(record.get("event_type", record.get("type", "sample")), "event_type")
    interval = record.get("sampling_interval_ms", default_sampling_interval_ms)
    fields["sampling_interval_ms"] = whole(interval, "sampling_interval_ms")
    fields["pid"] = whole(_said("pid", record, metadata, UNKNOWN_PID), "pid")
    fields["host"] = text(_said("host", record, metadata, UNKNOWN_HOST), "host")
    fields["collector"] = _collector(record, metadata, fields["device_id"], default_collector)
    fields |= resolve_distributed_identity(
        **{name: record.get(name) for name in OPTIONAL_FIELDS}, metadata=metadata
    )
    fields["context"] = any_text(record.get("context", record.get("message")), "context")
    fields["metadata"] = {name: value for name, value in metadata.items() if name not in OPTIONAL_FIELDS}
    return fields


def _metadata(record: Record) -> dict[str, Any]:
    given = record.get("metadata")
    if given is not None and not isinstance(given, Mapping):
        raise ValueError("metadata must be an object when provided")
    prefixed = {
        name.removeprefix("metadata_"): value
        for name, value in record.items()
        if isinstance(name, str) and name.startswith("metadata_")
    }
    return {**(given or {}), **prefixed}


def _timestamp_ns(record: Record) -> int:
    if "timestamp_ns" in record:
        return whole(record["timestamp_ns"], "timestamp_ns")
    seconds = record.get("timestamp")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        try:
            return int(float(seconds) * 1_000_000_000)
        except (OverflowError, ValueError) as error:  # infinite, no number, or beyond any clock
            raise ValueError("Legacy record is missing a valid timestamp") from error
    raise ValueError("Legacy record is missing a valid timestamp")


def _device_id(record: Record) -> int:
    if "device_id" in record:
        return whole(record["device_id"], "device_id")
    device = record.get("device")
    if isinstance(device, str):
        if "cpu" in device.lower():
            return -1
        _, colon, index = device.rpartition(":")
        if colon and index.isdigit():
            return int(index)
        if device.lower().startswith("/gpu"):
            return 0
    return 0 if "memory_mb" in record else -1


def _first(record: Record, names: tuple[str, ...], default: int) -> int:
    """The first of the fields that is there; null is there, and no integer."""
    for name in names:
        if name in record:
            return whole(record[name], name)
    return default


def _allocated(record: Record) -> int:
    for name in ("allocator_allocated_bytes", "memory_allocated"):
        if name in record:
            return whole(record[name], name)
    megabytes = record.get("memory_mb")
    if isinstance(megabytes, int | float) and not isinstance(megabytes, bool):
        try:
            return int(float(megabytes) * 1024**2)
        except (OverflowError, ValueError) as error:
            raise ValueError("memory_mb must be a finite number") from error
    return _first(record, ("device_used_bytes",), 0)


def _total(record: Record, metadata: Record) -> int | None:
    if "device_total_bytes" in record:
        return optional_whole(record["device_total_bytes"], "device_total_bytes")
    for source in (record, metadata):
        for name in _TOTALS:
            if name in source:
                return optional_whole(source[name], name)
    return None


def _free(record: Record, used: int, total: int | None) -> int | None:
    if "device_free_bytes" in record:
        return optional_whole(record["device_free_bytes"], "device_free_bytes")
    return None if total is None else max(total - used, 0)


def _said(name: str, record: Record, metadata: Record, default: Any) -> Any:
    return record[name] if name in record else metadata.get(name, default)


def _collector(record: Record, metadata: Record, device_id: int, default: str) -> str:
    named = record.get("collector")
    if isinstance(named, str) and named.strip():
        return named
    backend = record.get("backend", metadata.get("backend"))
    if isinstance(backend, str) and backend.strip().lower() in _COLLECTORS:
        return _COLLECTORS[backend.strip().lower()]
    if "memory_mb" in record:
        return _TENSORFLOW
    if "memory_allocated" in record:
        return _COLLECTORS["cpu" if device_id == -1 else "cuda"]
    return default

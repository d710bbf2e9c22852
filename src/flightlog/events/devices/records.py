"""Records of files to device-memory events: of any schema version, of older tools, one by one and in bulk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, StructMeta, UnsetType

from flightlog.events.devices.checks import validate_telemetry_record, validate_v4_record
from flightlog.events.devices.event import (
    ENVELOPE_FIELDS,
    OPTIONAL_FIELDS,
    SCHEMA_VERSION_V2,
    SCHEMA_VERSION_V3,
    SCHEMA_VERSION_V4,
    DeviceMemory,
    TelemetryEvent,
    TelemetryEventV3,
    TelemetryEventV4,
    any_text,
    is_whole,
    json_object,
    optional_whole,
    resolve_distributed_identity,
    stable_legacy_session_id,
    text,
    whole,
)

_KIND_IN_A_RUN = DeviceMemory.__struct_config__.tag


def telemetry_event_from_record(
    record: Mapping[str, Any],
    permissive_legacy: bool = True,
    default_collector: str = "legacy.unknown",
    default_sampling_interval_ms: int = 0,
    default_session_id: str | None = None,
) -> TelemetryEvent:
    """The event of a record of schema v3 or v2, or of one from before there were versions.

    Legacy records, those without `schema_version`, raise ValueError unless `permissive_legacy`. A record that
    names no session belongs to `default_session_id`, or to one made of its time, host and process. Raises
    ValueError for a record that breaks a rule.
    """
    if not isinstance(record, Mapping):
        raise ValueError("record must be a mapping")  # noqa: TRY004 - one error type for all bad records
    plain = event_from_plain_record(record)
    if plain is not None:
        return plain
    if "schema_version" in record:
        version = whole(record["schema_version"], "schema_version")
        if version not in {SCHEMA_VERSION_V2, SCHEMA_VERSION_V3}:
            raise ValueError(f"Unsupported schema_version: {version}")
        fields = _complete(record, SCHEMA_VERSION_V3, default_session_id)
        validate_telemetry_record({**record, **_named(fields)})
        return _build(TelemetryEventV3, fields)
    if not permissive_legacy:
        raise ValueError("Legacy record conversion is disabled")
    fields = fields_of_legacy_record(
        record, default_collector=default_collector, default_sampling_interval_ms=default_sampling_interval_ms
    )
    fields["session_id"] = _session_id(record, fields["metadata"], default_session_id)
    fields["metadata"].pop("session_id", None)
    fields["schema_version"] = SCHEMA_VERSION_V3
    validate_telemetry_record(fields)
    return _build(TelemetryEventV3, fields)


def telemetry_event_from_file_record(
    record: Mapping[str, Any], *, permissive_legacy: bool = True, default_session_id: str | None = None
) -> TelemetryEvent:
    """As `telemetry_event_from_record`; takes what else files hold too: schema v4, and the lines of a run."""
    if record.get("event") == _KIND_IN_A_RUN:
        record = {name: value for name, value in record.items() if name not in ENVELOPE_FIELDS}
    version = record.get("schema_version")
    if is_whole(version) and version == SCHEMA_VERSION_V4:
        try:
            fields = _complete(record, SCHEMA_VERSION_V4, default_session_id)
            validate_v4_record({**record, **_named(fields)})
        except ValueError as error:
            raise ValueError(f"Unsupported schema_version: 4, for it is not whole: {error}") from error
        return _build(TelemetryEventV4, fields)
    return telemetry_event_from_record(
        record, permissive_legacy=permissive_legacy, default_session_id=default_session_id
    )


def _complete(record: Mapping[str, Any], version: int, default_session_id: str | None) -> dict[str, Any]:
    """The record with its version, its session and its place among the ranks."""
    metadata = json_object(record.get("metadata", {}))
    identity = resolve_distributed_identity(**{name: record.get(name) for name in OPTIONAL_FIELDS})
    session_id = _session_id(record, metadata, default_session_id)
    return {**record, **identity, "schema_version": version, "session_id": session_id, "metadata": metadata}


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("schema_version", "session_id")}


def _session_id(record: Mapping[str, Any], metadata: Mapping[str, Any], default: str | None) -> str:
    named = record.get("session_id")
    if named is None:
        named = metadata.get("session_id")
    if isinstance(named, str) and named.strip():
        return named
    if default is not None:
        return default
    return stable_legacy_session_id(
        record.get("timestamp_ns", record.get("timestamp", "unknown")),
        record.get("host", UNKNOWN_HOST),
        record.get("pid", UNKNOWN_PID),
    )


def _build(kind: type[TelemetryEventV3], fields: Mapping[str, Any]) -> TelemetryEvent:
    """The event of fields that have been checked."""
    event: TelemetryEvent = StructMeta.__call__(kind, **fields)
    return event


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


_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _LocalRank(Struct):
    local_rank: int | UnsetType = UNSET


_LOCAL_RANK = msgspec.json.Decoder(_LocalRank)
_LOCAL_RANKS = msgspec.json.Decoder(list[_LocalRank])


def break_a_rule(events: Sequence[TelemetryEvent]) -> list[TelemetryEvent]:
    """Those decoded events that break a rule between fields, or hold blank text: what the decoder does not
    check.
    """
    return [
        event
        for event in events
        if (
            (total := event.device_total_bytes) is not None
            and (
                ((used := event.device_used_bytes) is not None and used > total)
                or ((free := event.device_free_bytes) is not None and free > total)
            )
        )
        or event.rank >= event.world_size
        or event.local_rank >= event.world_size
        or event.session_id.isspace()
        or event.event_type.isspace()
        or event.collector.isspace()
        or event.host.isspace()
        or ((job := event.job_id) is not None and job.isspace())
    ]


def event_from_plain_record(record: Mapping[str, Any]) -> TelemetryEvent | None:
    """The event of a record of v3 that is plainly valid; None for any other."""
    if type(record) is not dict or ("local_rank" not in record and "rank" in record):
        return None
    try:
        event = msgspec.convert(record, TelemetryEventV3)
    except (msgspec.ValidationError, RecursionError):
        return None
    if break_a_rule([event]):
        return None
    event.metadata = dict(record["metadata"])  # its values as they are, not as a decoder would copy them
    return event


class BulkDecoder:
    """Decodes JSON events of v3 and v4 many at a time; not thread-safe.

    Tries the version that it met last first, as files rarely mix them.
    """

    def __init__(self) -> None:
        self._kinds: list[type[TelemetryEventV3]] = [TelemetryEventV3, TelemetryEventV4]
        self._one = {kind: msgspec.json.Decoder(kind) for kind in self._kinds}
        lists: list[Any] = [list[kind] for kind in self._kinds]  # type: ignore[valid-type]
        self._many = dict(zip(self._kinds, map(msgspec.json.Decoder, lists), strict=True))

    def lines(self, block: bytes) -> list[TelemetryEvent] | None:
        """The events of whole lines; None unless every one is plainly valid."""
        return self._decode(
            lambda kind: self._one[kind].decode_lines(block), lambda: _LOCAL_RANK.decode_lines(block)
        )

    def array(self, text: bytes) -> list[TelemetryEvent] | None:
        """The events of a JSON array; None unless every one is plainly valid."""
        return self._decode(lambda kind: self._many[kind].decode(text), lambda: _LOCAL_RANKS.decode(text))

    def _decode(
        self,
        decode: Callable[[type[TelemetryEventV3]], list[TelemetryEvent]],
        local_ranks: Callable[[], list[_LocalRank]],
    ) -> list[TelemetryEvent] | None:
        for kind in tuple(self._kinds):
            try:
                events = decode(kind)
            except _REFUSED:
                continue
            if kind is not self._kinds[0]:
                self._kinds.reverse()
            if break_a_rule(events):
                return None
            # A list is faster.
            if any([event.rank and not event.local_rank for event in events]):  # noqa: C419
                _fill_in(events, local_ranks())
            return events
        return None


def _fill_in(events: Sequence[TelemetryEvent], given: Sequence[_LocalRank]) -> None:
    """Tell a local rank of 0 from one that was left out, which is the rank."""
    for event, found in zip(events, given, strict=True):
        if found.local_rank is UNSET:
            event.local_rank = event.rank

"""Records of device memory made into events: what a record must hold, of whatever schema version, legacy
records, one by one and in bulk; and which rank of a job a process is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
from msgspec import UNSET, Struct, StructMeta, UnsetType, inspect

from flightlog.events.devices.event import (
    ENVELOPE_FIELDS,
    OPTIONAL_FIELDS,
    RECORD_FIELDS,
    REQUIRED_V2_FIELDS,
    REQUIRED_V3_FIELDS,
    SCHEMA_VERSION_V2,
    SCHEMA_VERSION_V3,
    SCHEMA_VERSION_V4,
    DeviceMemory,
    TelemetryEvent,
    TelemetryEventV2,
    TelemetryEventV3,
    TelemetryEventV4,
    stable_legacy_session_id,
)

_KIND_IN_A_RUN = DeviceMemory.__struct_config__.tag


def is_whole(value: Any) -> bool:
    """Whether a value is an integer; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(value: Any, field: str, *, optional: bool = False, least: int | None = None) -> Any:
    """An integer that is not too small; None where that is fine."""
    if value is None and optional:
        return None
    if not is_whole(value):
        raise ValueError(f"{field} must be an integer")
    if least is not None and value < least:
        raise ValueError(f"{field} must be >= {least}{' when provided' if optional else ''}")
    return value


def text(value: Any, field: str, *, optional: bool = False, blank: bool = False) -> Any:
    """Text, which says something unless it may be blank; None where that is fine."""
    if value is None and optional:
        return None
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{field} must be a string")
    if value is None or not (blank or value.strip()):
        raise ValueError(f"{field} must be a non-empty string")
    return value


def json_object(value: Any, field: str = "metadata") -> dict[str, Any]:
    """A copy of a record's metadata."""
    if not isinstance(value, dict):
        raise ValueError(f"{field} must be an object")  # noqa: TRY004 - one error type for all bad records
    return dict(value)


_Rule = tuple[Callable[..., Any], int | None]
"""What checks a value's type, and the least that it may be."""


def _rule(declared: inspect.Type) -> _Rule:
    """What a field's declaration asks of a value."""
    kind, optional = declared, False
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        optional = optional or isinstance(kind, inspect.UnionType)
        kind = kind.type if isinstance(kind, inspect.Metadata) else kind.types[0]
    if isinstance(kind, inspect.IntType):
        return partial(whole, optional=optional), kind.ge
    if isinstance(kind, inspect.StrType):
        return partial(text, optional=optional, blank=kind.min_length is None), None
    return json_object, None


def _rules_of(kind: type[Struct]) -> dict[str, _Rule]:
    declared = inspect.type_info(kind)
    return {field.name: _rule(field.type) for field in declared.fields}  # type: ignore[attr-defined]


_RULES = {
    SCHEMA_VERSION_V2: _rules_of(TelemetryEventV2),
    SCHEMA_VERSION_V3: _rules_of(TelemetryEventV3),
    SCHEMA_VERSION_V4: _rules_of(TelemetryEventV4),
}
_GROUPS = [
    tuple(names)
    for _, names in groupby(
        RECORD_FIELDS[1:], lambda name: name.partition("_")[0] if name.endswith("_bytes") else name
    )
]
"""The fields in the order of their checks; the allocator's counters are one group, and so are the
device's."""


def validate_telemetry_record(record: Mapping[str, Any]) -> None:
    """Raise ValueError unless the record is a whole and valid one of schema v2 or v3.

    Rules are checked in a fixed order: the first violation is the error.
    """
    _check(record, (SCHEMA_VERSION_V2, SCHEMA_VERSION_V3))


def telemetry_event_to_dict(event: TelemetryEventV3 | TelemetryEventV2) -> dict[str, Any]:
    """The event as the record that files hold, in the schema's order; `metadata` is a copy."""
    of_v2 = isinstance(event, TelemetryEventV2)
    record = {name: getattr(event, name) for name in RECORD_FIELDS if not (of_v2 and name == "session_id")}
    record["metadata"] = dict(event.metadata)
    return record


def check_event(event: TelemetryEventV3 | TelemetryEventV2) -> None:
    """Raise ValueError unless the event is a valid one of its version."""
    of_v4 = isinstance(event, TelemetryEventV4)
    versions = (SCHEMA_VERSION_V4,) if of_v4 else (SCHEMA_VERSION_V2, SCHEMA_VERSION_V3)
    _check(telemetry_event_to_dict(event), versions)


def _check(record: Mapping[str, Any], versions: tuple[int, ...]) -> None:
    """Of each group of fields first the types, then the ranges."""
    kind = TelemetryEventV4 if SCHEMA_VERSION_V4 in versions else TelemetryEventV3
    if _plain_event(record, kind) is not None:
        return  # as the decoder sees it, which is far faster, and gives other reasons
    version = whole(record.get("schema_version"), "schema_version")
    if version not in versions:
        raise ValueError(f"Unsupported schema_version: {version}")
    required = REQUIRED_V2_FIELDS if version == SCHEMA_VERSION_V2 else REQUIRED_V3_FIELDS
    missing = [name for name in required if name not in record]
    if missing:
        raise ValueError(f"Missing required telemetry fields: {', '.join(missing)}")
    rules = _RULES[version]
    unknown = sorted(str(name) for name in record if name not in rules)
    if unknown:
        raise ValueError(f"Unknown telemetry fields: {', '.join(unknown)}")
    for group in _GROUPS:
        given = [(name, record[name], *rules[name]) for name in group if name in record]
        for name, value, check, _ in given:
            check(value, name)
        for name, value, check, least in given:
            if least is not None:
                check(value, name, least=least)
        total = record["device_total_bytes"] if "device_total_bytes" in group else None
        for name in ("device_used_bytes", "device_free_bytes"):
            if total is not None and record[name] is not None and record[name] > total:
                raise ValueError(f"{name} cannot exceed device_total_bytes")
    resolve_distributed_identity(**{name: record.get(name) for name in OPTIONAL_FIELDS})


_ALWAYS_KNOWN = (
    "allocator_allocated_bytes",
    "allocator_reserved_bytes",
    "allocator_change_bytes",
    "device_used_bytes",
)
"""Counters that v3 cannot leave open, as v4 can."""


def fill_unknown_counters(record: dict[str, Any]) -> dict[str, bool]:
    """Give those counters of v3 that are None a value: 0, or the nearest that is known.

    Gives what `metadata.memory_capabilities` has to say of them.
    """
    denied = {
        f"supports_{name.removesuffix('_bytes')}": False for name in _ALWAYS_KNOWN if record[name] is None
    }
    allocated, reserved, change, used = (record[name] for name in _ALWAYS_KNOWN)
    reserved = (allocated or 0) if reserved is None else reserved
    used = max(reserved, allocated or 0) if used is None else used
    record |= zip(_ALWAYS_KNOWN, (allocated or 0, reserved, change or 0, used), strict=True)
    return denied


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
        return _of_version(record, SCHEMA_VERSION_V3, default_session_id)
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
            return _of_version(record, SCHEMA_VERSION_V4, default_session_id)
        except ValueError as error:
            raise ValueError(f"Unsupported schema_version: 4, for it is not whole: {error}") from error
    return telemetry_event_from_record(
        record, permissive_legacy=permissive_legacy, default_session_id=default_session_id
    )


def _of_version(record: Mapping[str, Any], version: int, default_session_id: str | None) -> TelemetryEvent:
    """The event of a record with its version, its session and its place among the ranks."""
    metadata = json_object(record.get("metadata", {}))
    identity = resolve_distributed_identity(**{name: record.get(name) for name in OPTIONAL_FIELDS})
    named = {"schema_version": version, "session_id": _session_id(record, metadata, default_session_id)}
    _check({**record, **named}, (version,))
    kind = TelemetryEventV4 if version == SCHEMA_VERSION_V4 else TelemetryEventV3
    return _build(kind, {**record, **identity, **named, "metadata": metadata})


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
        fields[name] = whole(record.get(name), name, optional=True)
    used = fields["device_used_bytes"] = _first(record, ("device_used_bytes",), allocated)
    total = fields["device_total_bytes"] = _total(record, metadata)
    free = None if total is None else max(total - used, 0)
    fields["device_free_bytes"] = _first(record, ("device_free_bytes",), free, optional=True)
    fields["event_type"] = text(record.get("event_type", record.get("type", "sample")), "event_type")
    interval = record.get("sampling_interval_ms", default_sampling_interval_ms)
    fields["sampling_interval_ms"] = whole(interval, "sampling_interval_ms")
    fields["pid"] = whole(_said("pid", record, metadata, UNKNOWN_PID), "pid")
    fields["host"] = text(_said("host", record, metadata, UNKNOWN_HOST), "host")
    fields["collector"] = _collector(record, metadata, fields["device_id"], default_collector)
    fields |= resolve_distributed_identity(
        **{name: record.get(name) for name in OPTIONAL_FIELDS}, metadata=metadata
    )
    fields["context"] = text(
        record.get("context", record.get("message")), "context", optional=True, blank=True
    )
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
        return int(whole(record["timestamp_ns"], "timestamp_ns"))
    said = "Legacy record is missing a valid timestamp"
    found = _scaled(record.get("timestamp"), 1_000_000_000, said)
    if found is None:
        raise ValueError(said)
    return found


def _scaled(value: Any, factor: int, said: str) -> int | None:
    """A number in a smaller unit, None for no number; ValueError for one that is infinite or none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return int(float(value) * factor)
    except (OverflowError, ValueError) as error:
        raise ValueError(said) from error


def _device_id(record: Record) -> int:
    if "device_id" in record:
        return int(whole(record["device_id"], "device_id"))
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


def _first(record: Record, names: tuple[str, ...], default: Any, *, optional: bool = False) -> Any:
    """The first of the fields that is there; null is there, and no integer unless it may be unknown."""
    return next((whole(record[name], name, optional=optional) for name in names if name in record), default)


def _allocated(record: Record) -> int:
    found = _first(record, ("allocator_allocated_bytes", "memory_allocated"), None)
    if found is None:
        found = _scaled(record.get("memory_mb"), 1024**2, "memory_mb must be a finite number")
    return int(_first(record, ("device_used_bytes",), 0) if found is None else found)


def _total(record: Record, metadata: Record) -> int | None:
    for source, names in ((record, ("device_total_bytes", *_TOTALS)), (metadata, _TOTALS)):
        for name in names:
            if name in source:
                total: int | None = whole(source[name], name, optional=True)
                return total
    return None


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


_RANK_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),  # Slurm
)
_JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


def resolve_distributed_identity(
    *,
    job_id: Any = None,
    rank: Any = None,
    local_rank: Any = None,
    world_size: Any = None,
    metadata: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`job_id`, `rank`, `local_rank` and `world_size` of a process.

    What is given counts before what `metadata` says, and that before the launcher's variables in `env`:
    torchrun, Open MPI or Slurm, the first of them that sets both rank and size. What nobody says is one
    process alone; a local rank that nobody says is the rank. Raises ValueError for what cannot be.
    """
    given = {"job_id": job_id, "rank": rank, "local_rank": local_rank, "world_size": world_size}
    said = metadata or {}
    found: dict[str, Any] = {
        name: value if value is not None else said.get(name) for name, value in given.items()
    }
    if env is not None:
        ranks_known = all(found[name] is not None for name in ("rank", "local_rank", "world_size"))
        inferred = {"job_id": _job_of(env)} | ({} if ranks_known else _ranks_of(env))
        found |= {name: value for name, value in inferred.items() if found[name] is None}
    if found["world_size"] is None:
        found["world_size"] = 1
    if found["rank"] is None:
        found["rank"] = 0
    if found["local_rank"] is None:
        found["local_rank"] = found["rank"]
    text(found["job_id"], "job_id", optional=True)
    _check_ranks(found)
    for name in ("rank", "local_rank"):
        if found[name] >= found["world_size"]:
            raise ValueError(f"{name} must be < world_size")
    return found


def _check_ranks(found: Mapping[str, Any]) -> None:
    for name in OPTIONAL_FIELDS[1:]:
        whole(found[name], name, least=_RULES[SCHEMA_VERSION_V3][name][1])


def _job_of(env: Mapping[str, str]) -> str | None:
    named = (env.get(variable, "").strip() for variable in _JOB_VARIABLES)
    return next((job for job in named if job), None)


def _ranks_of(env: Mapping[str, str]) -> dict[str, int]:
    for rank, local_rank, world_size in _RANK_VARIABLES:
        if rank in env and world_size in env:
            local = env.get(local_rank, "")
            found = {
                "rank": _number(env[rank], "rank"),
                "local_rank": _number(local if local.strip() else env[rank], "local_rank"),
                "world_size": _number(env[world_size], "world_size"),
            }
            _check_ranks(found)
            return found
    return {}


def _number(value: str, field: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ValueError(f"{field} must be an integer") from error


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
    event = _plain_event(record, TelemetryEventV3)
    if event is None or ("local_rank" not in record and "rank" in record):
        return None
    event.metadata = dict(record["metadata"])  # its values as they are, not as a decoder would copy them
    return event


def _plain_event(record: Mapping[str, Any], kind: type[TelemetryEventV3]) -> TelemetryEvent | None:
    if type(record) is not dict:
        return None
    try:
        event = msgspec.convert(record, kind)
    except (msgspec.ValidationError, RecursionError):
        return None
    return None if break_a_rule([event]) else event


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
                # A local rank of 0 is told from one that was left out, which is the rank.
                for event, found in zip(events, local_ranks(), strict=True):
                    if found.local_rank is UNSET:
                        event.local_rank = event.rank
            return events
        return None

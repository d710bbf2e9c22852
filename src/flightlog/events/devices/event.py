"""The device-memory event, its fields declared once: as files of schema v2, v3 and v4 hold it, and as a run
does.

Each event belongs to a process of a distributed job and to a session, which is the life of one collector in
one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin
from uuid import NAMESPACE_URL, uuid5

from msgspec import Meta, Struct, StructMeta, defstruct
from msgspec.structs import fields

from flightlog.events.base import Bytes, Event, Json, Milliseconds, Nanoseconds, doc, register

SCHEMA_VERSION_V2: Literal[2] = 2
SCHEMA_VERSION_V3: Literal[3] = 3
SCHEMA_VERSION_V4: Literal[4] = 4
SCHEMA_VERSION_LATEST: Literal[3] = SCHEMA_VERSION_V3
"""What is written. Files of v4 are read too."""

_BOUNDS = _FROM_0, _FROM_1, _FROM_MINUS_1, _SAID = Meta(ge=0), Meta(ge=1), Meta(ge=-1), Meta(min_length=1)
_Counter = Annotated[Bytes, _FROM_0]


class _CheckedWhenBuilt(StructMeta):
    """Events built by hand are checked as records are; those that a decoder builds are checked by the
    decoder.

    Fields are laid out by name, as the lines of sink folders have them: a decoder finds them a sixth faster.
    """

    declared: tuple[str, ...]
    """A class's own fields in the order of their declaration."""

    if not TYPE_CHECKING:  # the fields tell type checkers what to pass

        def __new__(
            mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
        ) -> Any:
            fields = namespace.get("__annotations__", {})
            namespace["__annotations__"] = dict(sorted(fields.items()))
            namespace.setdefault("__match_args__", ())  # which `dataclass` would set, and cannot
            made = super().__new__(mcls, name, bases, namespace, **options)
            made.declared = tuple(fields)
            return made

        def __call__(self, *args: Any, **values: Any) -> Any:
            from flightlog.events.devices.records import check_event

            if args:
                values = _by_position(self, args, values)
            values.setdefault("metadata", {})
            event = super().__call__(**values)
            check_event(event)
            return event


class _Fields(Struct, kw_only=True, forbid_unknown_fields=True, gc=False, metaclass=_CheckedWhenBuilt):
    """What all versions have in common, in the order of the schema; a record must hold all but the last
    four.
    """

    timestamp_ns: Annotated[Nanoseconds, _FROM_0, doc("Unix time")]
    event_type: Annotated[str, _SAID, doc("what led to the record: sample, allocation, start, stop, …")]
    collector: Annotated[str, _SAID, doc("what counted, such as `flightlog.cuda`")]
    sampling_interval_ms: Annotated[Milliseconds, _FROM_0, doc("interval between samples")]
    pid: Annotated[int, _FROM_MINUS_1, doc("process; -1 if unknown")]
    host: Annotated[str, _SAID, doc("host")]
    device_id: Annotated[int, doc("device index; -1 if unknown")]
    allocator_allocated_bytes: Annotated[_Counter, doc("handed out by the framework's allocator")]
    allocator_reserved_bytes: Annotated[_Counter, doc("held by the framework's allocator")]
    allocator_active_bytes: Annotated[_Counter | None, doc("in active blocks")]
    allocator_inactive_bytes: Annotated[_Counter | None, doc("in inactive blocks")]
    allocator_change_bytes: Annotated[Bytes, doc("change since the previous event")]
    device_used_bytes: Annotated[_Counter, doc("in use on the device, by everyone")]
    device_free_bytes: Annotated[_Counter | None, doc("free on the device")]
    device_total_bytes: Annotated[_Counter | None, doc("there is on the device")]
    context: Annotated[str | None, doc("what the code was doing")]
    metadata: Annotated[Json, doc("anything else the collector knows")]
    job_id: Annotated[Annotated[str, _SAID] | None, doc("job of the batch system or launcher")] = None
    rank: Annotated[int, _FROM_0, doc("rank among all processes of the job")] = 0
    local_rank: Annotated[int, _FROM_0, doc("rank on this host")] = 0
    world_size: Annotated[int, _FROM_1, doc("number of ranks")] = 1

    if not TYPE_CHECKING:  # where it is an attribute

        @property
        def __dict__(self) -> dict[str, Any]:
            """The fields and their values, for `vars`."""
            return {name: getattr(self, name) for name in _names(type(self))}


def _names(kind: Any) -> list[str]:
    """The fields in the order of the schema, metadata last, and then those that a derived class adds."""
    first = ["schema_version", "session_id", *(name for name in _Fields.declared if name != "metadata")]
    names = dict.fromkeys([*first, "metadata", *kind.__struct_fields__])
    return [name for name in names if name in kind.__struct_fields__]


def _by_position(kind: Any, args: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Arguments without names, in the order of the schema: version and session first, what may be left out
    last.
    """
    names = _names(kind)
    if len(args) > len(names):
        raise TypeError(f"{kind.__name__} takes {len(names)} arguments, not {len(args)}")
    given = dict(zip(names, args, strict=False))
    twice = given.keys() & values.keys()
    if twice:
        raise TypeError(f"{kind.__name__} got {', '.join(sorted(twice))} twice")
    return given | values


class TelemetryEventV2(_Fields):
    """An event of schema v2, which knew no sessions. Building an invalid one raises ValueError."""

    schema_version: Annotated[Literal[2], doc("version of the device schema: 2")]


class TelemetryEventV3(_Fields):
    """Allocator and device memory counters of one process on one device at one moment (schema v3).

    Building an invalid one raises the ValueError of `validate_telemetry_record`; `metadata` may be left out
    then.
    """

    schema_version: Annotated[Literal[3], doc("version of the device schema: 3")]
    session_id: Annotated[str, _SAID, doc("one collector's life in one process")]


class TelemetryEventV4(TelemetryEventV3):
    """An event of schema v4: every counter may be unknown, and is None then.

    `metadata["memory_capabilities"]` says which counters the backend has.
    """

    schema_version: Annotated[Literal[4], doc("version of the device schema: 4")]  # type: ignore[assignment]
    allocator_allocated_bytes: _Counter | None  # type: ignore[assignment]
    allocator_reserved_bytes: _Counter | None  # type: ignore[assignment]
    allocator_change_bytes: Bytes | None  # type: ignore[assignment]
    device_used_bytes: _Counter | None  # type: ignore[assignment]


TelemetryEvent = TelemetryEventV3

OPTIONAL_FIELDS = ("job_id", "rank", "local_rank", "world_size")
REQUIRED_V2_FIELDS = ("schema_version", *(name for name in _Fields.declared if name not in OPTIONAL_FIELDS))
REQUIRED_V3_FIELDS = ("schema_version", "session_id", *REQUIRED_V2_FIELDS[1:])

_HOST = REQUIRED_V3_FIELDS.index("host") + 1
RECORD_FIELDS = (*REQUIRED_V3_FIELDS[:_HOST], *OPTIONAL_FIELDS, *REQUIRED_V3_FIELDS[_HOST:])
"""The fields of v3 and v4 in the order in which records are written; v2 has them without `session_id`."""

ENVELOPE_FIELDS = ("event", *Event.__struct_fields__)
"""What a line of a run's `devices.jsonl` has beside the fields of v3."""


def _unbounded(kind: Any) -> Any:
    """A field's type without its bounds: a run is read as it was written, and what is odd in it is seen
    there.
    """
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        kept = [meta for meta in inner[1:] if meta not in _BOUNDS]
        return Annotated[_unbounded(inner[0]), *kept] if kept else _unbounded(inner[0])
    if get_origin(kind) is Literal:
        return type(inner[0])
    if get_origin(kind) in {Union, UnionType}:
        return reduce(or_, map(_unbounded, inner))
    return kind


if TYPE_CHECKING:

    class DeviceMemory(Event, TelemetryEventV3, kw_only=True):
        """A `TelemetryEventV3` in a run's `devices` stream."""

        stream: ClassVar[str]
else:
    _DECLARED = {field.name: field for field in fields(TelemetryEventV3)}
    DeviceMemory = register(
        defstruct(
            "DeviceMemory",
            [
                (
                    name,
                    _unbounded(_DECLARED[name].type),
                    *([] if _DECLARED[name].required else [_DECLARED[name].default]),
                )
                for name in (*REQUIRED_V3_FIELDS, *OPTIONAL_FIELDS)
            ],
            bases=(Event,),
            namespace={
                "__doc__": "Allocator and device memory counters at one moment (device telemetry schema v3).",
                "stream": "devices",
            },
            module=__name__,
            tag="device_memory",
            kw_only=True,
        )
    )


OOM_DUMP = "oom_dump_path"


def marks_out_of_memory(event: TelemetryEvent | DeviceMemory) -> bool:
    """Whether an event is an error that its collector marked as out of memory."""
    return event.event_type == "error" and not event.metadata.keys().isdisjoint({"oom_reason", OOM_DUMP})


def stable_legacy_session_id(*parts: object) -> str:
    """A session id for records that name none: the same parts give the same id. Parts that are None are left
    out.
    """
    return f"legacy-{uuid5(NAMESPACE_URL, '::'.join(str(part) for part in parts if part is not None))}"


COMPLETED, INTERRUPTED, INCOMPLETE, RUNNING = "completed", "interrupted", "incomplete", "running"
SESSION_STATUSES = (COMPLETED, INTERRUPTED, INCOMPLETE, RUNNING)
"""In the order in which sessions are preferred."""


class SessionSummary(Struct, frozen=True):
    """Who recorded, from when to when, and how it ended. Times are Unix nanoseconds; no end is known while
    None.
    """

    session_id: str
    status: str
    started_at_ns: int
    ended_at_ns: int | None
    host: str
    pid: int
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    source: str = "stormlog.session"


def summary_of_events(events: Sequence[TelemetryEvent], *, source: str) -> SessionSummary:
    """The summary that events in order of time tell; there must be one at least.

    A `stop` event completes the session, and the last of them ends it. Without one the end is not known.
    """
    first = events[0]
    stopped = next((event.timestamp_ns for event in reversed(events) if event.event_type == "stop"), None)
    same = ("session_id", "host", "pid", *OPTIONAL_FIELDS)
    return SessionSummary(
        status=INCOMPLETE if stopped is None else COMPLETED,
        started_at_ns=first.timestamp_ns,
        ended_at_ns=stopped,
        source=source,
        **{name: getattr(first, name) for name in same},
    )


def preference(summary: SessionSummary) -> tuple[int, int, int, str]:
    """What sessions are sorted by."""
    rank = {status: number for number, status in enumerate(SESSION_STATUSES)}
    return (
        rank.get(summary.status, len(rank)),
        -(summary.ended_at_ns or summary.started_at_ns),
        -summary.started_at_ns,
        summary.session_id,
    )

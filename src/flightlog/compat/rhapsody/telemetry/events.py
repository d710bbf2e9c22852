"""What telemetry tells: one frozen dataclass for each kind of event, and a way to define more."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from dataclasses import dataclass, field
from typing import Any, TypeVar

E = TypeVar("E")


@dataclass(frozen=True)
class BaseEvent:
    """Something that happened, and when: `event_time` is when it did, `emit_time` when it was told, in Unix
    seconds.

    Events of a session have no `task_id`; `node_id` is where it happened, if that matters. `attributes` of a
    task's events hold `executable` and `task_type`, those of a failed one `error_type`, and
    `incomplete_lifecycle` where its start was never seen.
    """

    event_id: str
    event_type: str
    event_time: float
    emit_time: float
    session_id: str
    backend: str
    task_id: str | None = None
    node_id: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SessionStarted(BaseEvent):
    """Telemetry of a session began."""

    event_type: str = field(default="SessionStarted", init=False)


@dataclass(frozen=True)
class SessionEnded(BaseEvent):
    """Telemetry of a session ended."""

    duration_seconds: float = 0.0
    event_type: str = field(default="SessionEnded", init=False)


@dataclass(frozen=True)
class TaskCreated(BaseEvent):
    """A task became known, before any backend has it."""

    event_type: str = field(default="TaskCreated", init=False)


@dataclass(frozen=True)
class TaskSubmitted(BaseEvent):
    """A task was handed to the session."""

    event_type: str = field(default="TaskSubmitted", init=False)


@dataclass(frozen=True)
class TaskQueued(BaseEvent):
    """A task was handed to its backend, and waits there."""

    event_type: str = field(default="TaskQueued", init=False)


@dataclass(frozen=True)
class TaskStarted(BaseEvent):
    """A task began to run."""

    event_type: str = field(default="TaskStarted", init=False)


@dataclass(frozen=True)
class TaskCompleted(BaseEvent):
    """A task ran to its end. `duration_seconds` is execution alone, and 0.0 where its start was never
    seen.
    """

    duration_seconds: float = 0.0
    event_type: str = field(default="TaskCompleted", init=False)


@dataclass(frozen=True)
class TaskFailed(BaseEvent):
    """A task ended with an error of this type."""

    duration_seconds: float = 0.0
    error_type: str = "unknown"
    event_type: str = field(default="TaskFailed", init=False)


@dataclass(frozen=True)
class TaskCanceled(BaseEvent):
    """A task was given up, which is no error."""

    duration_seconds: float = 0.0
    event_type: str = field(default="TaskCanceled", init=False)


@dataclass(frozen=True)
class ResourceUpdate(BaseEvent):
    """How busy a node is, or, with a `gpu_id`, one of its GPUs: `resource_scope` says which. None is unknown.

    Percentages are of the moment, those of CPU and memory of the whole node, and of several GPUs the highest;
    bytes are since the sample before. Of one GPU only its own percentage is told.
    """

    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu_percent: float | None = None
    gpu_id: int | None = None
    disk_read_bytes: float | None = None
    disk_write_bytes: float | None = None
    net_sent_bytes: float | None = None
    net_recv_bytes: float | None = None
    event_type: str = field(default="ResourceUpdate", init=False)
    resource_scope: str = field(init=False, default="")

    def __post_init__(self) -> None:
        scope = "per_node" if self.gpu_id is None else "per_gpu"
        object.__setattr__(self, "resource_scope", scope)


_LATEST_S = 2**63 / 1e9
"""What does not fit into 64 bits of nanoseconds is no time."""


def happened(event: BaseEvent) -> float:
    """When something happened, in Unix seconds; when it was told, where that is no time."""
    return event.event_time if 0 <= event.event_time < _LATEST_S else event.emit_time


def seconds_of(event: Any) -> float | None:
    """How long something took; None where what it says is no time, or is not known."""
    seconds = event.duration_seconds
    if event.attributes.get("incomplete_lifecycle") and not seconds:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


_FIELDS = frozenset(one.name for one in dataclasses.fields(BaseEvent))
_EMPTY: dict[type, Any] = {float: 0.0, int: 0, str: "", bool: False}


def define_event(name: str, **fields: Any) -> type[Any]:
    """A kind of event of your own: `define_event("lab.Checked", score=float, label=(str, "unknown"))`.

    A field is its type, and then its default is that type's empty value, None for others than numbers, text
    and truth; or its type and its default. Raises ValueError for a name without a dot, which might be
    somebody else's too, and for a field that all events have.
    """
    if "." not in name:
        raise ValueError(
            f"define_event: name {name!r} must be namespaced, such as 'lab.{name}': others may use it too"
        )
    taken = sorted(_FIELDS & fields.keys())
    if taken:
        raise ValueError(f"define_event: fields {taken} shadow core BaseEvent fields, which all events have")
    declared: list[Any] = []
    for field_name, said in fields.items():
        kind, default = said if isinstance(said, tuple) else (said, _EMPTY.get(said))
        declared.append((field_name, kind, field(default=default)))
    declared.append(("event_type", str, field(default=name, init=False)))
    return dataclasses.make_dataclass(name, declared, bases=(BaseEvent,), frozen=True)


def make_event(cls: type[E], *, session_id: str, backend: str, **kwargs: Any) -> E:
    """An event with an id of its own, told now; and happened now, unless `event_time` says otherwise."""
    now = time.time()
    made: Any = cls
    event: E = made(
        event_id=f"{random.getrandbits(128):032x}",
        event_time=kwargs.pop("event_time", now),
        emit_time=now,
        session_id=session_id,
        backend=backend,
        **kwargs,
    )
    return event

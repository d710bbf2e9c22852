"""The events of telemetry: one frozen dataclass per kind, user-defined kinds, and the events of task
states.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar, cast

__all__ = [
    "BaseEvent",
    "ResourceUpdate",
    "SessionEnded",
    "SessionStarted",
    "TaskCanceled",
    "TaskCompleted",
    "TaskCreated",
    "TaskFailed",
    "TaskQueued",
    "TaskStarted",
    "TaskSubmitted",
    "define_event",
    "make_event",
]

E = TypeVar("E")


_LATEST_S = 2**63 / 1e9
"""The latest time that fits into 64 bits of nanoseconds."""
_EMPTY: dict[type, Any] = {float: 0.0, int: 0, str: "", bool: False}


@dataclass(frozen=True)
class BaseEvent:
    """An event: `event_time` is when it happened, `emit_time` when it was emitted, in Unix seconds.

    Events of a session have no `task_id`. The `attributes` of a task's events hold `executable` and
    `task_type`, those of a failed task `error_type`, and `incomplete_lifecycle` where its start was never
    seen.
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
    """A task was created; no backend has it yet."""

    event_type: str = field(default="TaskCreated", init=False)


@dataclass(frozen=True)
class TaskSubmitted(BaseEvent):
    """A task was submitted to the session."""

    event_type: str = field(default="TaskSubmitted", init=False)


@dataclass(frozen=True)
class TaskQueued(BaseEvent):
    """A task was submitted to its backend, and waits there."""

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
    """A task was canceled, which is no error."""

    duration_seconds: float = 0.0
    event_type: str = field(default="TaskCanceled", init=False)


@dataclass(frozen=True)
class ResourceUpdate(BaseEvent):
    """A sample of a node or, with a `gpu_id`, of one of its GPUs, as `resource_scope` says. None is unknown.

    CPU and memory are percentages of the whole node, `gpu_percent` of a node that of its busiest GPU; bytes
    are since the previous sample. A GPU's sample has its own percentage only.
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
        object.__setattr__(self, "resource_scope", "per_node" if self.gpu_id is None else "per_gpu")


def time_of(event: BaseEvent) -> float:
    """When an event happened, in Unix seconds; when it was emitted, where `event_time` is invalid."""
    return event.event_time if 0 <= event.event_time < _LATEST_S else event.emit_time


def duration_of(event: Any) -> float | None:
    """The duration of an event; None where it is invalid or unknown."""
    seconds = event.duration_seconds
    if event.attributes.get("incomplete_lifecycle") and not seconds:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


_random = Random()  # of our own: the numbers of the global one are the user's
os.register_at_fork(after_in_child=_random.seed)


def random_id(bits: int) -> int:
    """An id that is not 0."""
    return _random.getrandbits(bits) or 1


def _event_id() -> str:
    return f"{_random.getrandbits(128):032x}"


_FIELDS = frozenset(one.name for one in dataclasses.fields(BaseEvent))


def define_event(name: str, **fields: Any) -> type[Any]:
    """Define a kind of event: `define_event("lab.Checked", score=float, label=(str, "unknown"))`.

    A field is given as a type, or as a type and a default; the default is 0, "" or False, or None for other
    types. Raises ValueError for a name without a namespace, and for a field that all events have.
    """
    if "." not in name:
        raise ValueError(
            f"define_event: name {name!r} must be namespaced, such as 'lab.{name}': others may use it too"
        )
    taken = sorted(_FIELDS & fields.keys())
    if taken:
        raise ValueError(f"define_event: fields {taken} shadow core BaseEvent fields, which all events have")
    typed = {
        one: said if isinstance(said, tuple) else (said, _EMPTY.get(said)) for one, said in fields.items()
    }
    declared: list[Any] = [(one, kind, field(default=default)) for one, (kind, default) in typed.items()]
    declared.append(("event_type", str, field(default=name, init=False)))
    return dataclasses.make_dataclass(name, declared, bases=(BaseEvent,), frozen=True)


def make_event(cls: type[E], *, session_id: str, backend: str, **kwargs: Any) -> E:
    """Make an event with a new id, emitted now; `event_time` is now, unless given."""
    now, made = time.time(), cast(Any, cls)
    common = {"event_id": _event_id(), "event_time": now, "emit_time": now}
    return cast(E, made(**{**common, "session_id": session_id, "backend": backend, **kwargs}))


_ENDS: dict[str, type[BaseEvent]] = {"DONE": TaskCompleted, "FAILED": TaskFailed, "CANCELED": TaskCanceled}
_BEFORE = {"CREATED": TaskCreated, "SUBMITTED": TaskSubmitted, "QUEUED": TaskQueued, "RUNNING": TaskStarted}
_KINDS: dict[str, type[BaseEvent]] = {**_BEFORE, **_ENDS}


def task_event(
    session_id: str, task: Mapping[str, Any], state: str, measured: Mapping[str, Any], began: float | None
) -> BaseEvent | None:
    """The event of a task that entered this state; None for a state without an event.

    Times are as the backend measured them, or else now. A task that ends and whose start, `began`, is not
    known has `incomplete_lifecycle`, and no duration.
    """
    if state not in _KINDS:
        return None
    at = now = time.time()
    attributes: dict[str, Any] = {"executable": _executable(task), "task_type": task.get("task_type", "")}
    more: dict[str, Any] = {}
    if state == "RUNNING":
        at = measured.get("started_at") or at
    elif state in _ENDS:
        at = measured.get("ended_at") or at
        lasted = measured.get("duration_s")
        more["duration_seconds"] = max(0.0, at - (began or 0.0)) if lasted is None else lasted
        if state == "FAILED":
            error = task.get("exception")
            unnamed = "TaskExecutionError" if task.get("exit_code") else "unknown"
            named = unnamed if error is None else type(error).__name__
            more["error_type"] = attributes["error_type"] = named
        if task.get("executable") is not None and task.get("exit_code") is not None:
            attributes["exit_code"] = task["exit_code"]
        if began is None:
            attributes["incomplete_lifecycle"], more["duration_seconds"] = True, 0.0
    kind: Any = _KINDS[state]
    event: BaseEvent = kind(
        event_id=_event_id(),
        event_time=at,
        emit_time=now,
        session_id=session_id,
        backend=task.get("backend") or "",
        task_id=task["uid"],
        attributes=attributes,
        node_id=_node(measured),
        **more,
    )
    return event


def arguments(task: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a task."""
    if task.get("function") is not None:
        positional = {str(number): value for number, value in enumerate(task.get("args") or ())}
        return {**positional, **(task.get("kwargs") or {})}
    return {"arguments": task["arguments"]} if task.get("arguments") else {}


def _node(measured: Mapping[str, Any]) -> str | None:
    """The host of the worker that ran a task; None where it is unknown."""
    worker = measured.get("worker")
    return worker.partition(":")[0] if isinstance(worker, str) else None


def _executable(task: Mapping[str, Any]) -> str:
    """What a task runs: a command, a function's name, or a model."""
    function = task.get("function") or task.get("func")
    if function is not None:
        return str(getattr(function, "__name__", function))
    return str(task.get("executable") or task.get("model") or task.get("model_name") or "")

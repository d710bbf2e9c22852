"""The log of a run: what a person would want to be told, in words; not every task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from flightlog.analyze.live.newest import Newest
from flightlog.analyze.live.results import LogLine
from flightlog.analyze.live.words import LINE, NAME, args_text, cut, first_line
from flightlog.events import (
    ArtifactRecorded,
    Event,
    Failure,
    JobAccounted,
    JobStarted,
    TaskCancelled,
    TaskFailed,
    TaskRetried,
    UserEvent,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
    kind_of,
)
from flightlog.events.devices import DeviceMemory
from flightlog.store.lines import AnyEvent
from flightlog.units import format_bytes, format_duration

LINES = 200
Level = Literal["info", "warning", "error"]
_ALERTS: dict[str, Level] = {"warning": "warning", "critical": "error", "error": "error"}
_BY_TYPE = (
    TaskFailed,
    TaskRetried,
    TaskCancelled,
    Failure,
    WorkerLaunched,
    WorkerReady,
    WorkerLost,
    WorkerRemoved,
    ArtifactRecorded,
    JobStarted,
    JobAccounted,
    UserEvent,
    DeviceMemory,
)


class LiveLog:
    """The last lines of all streams together. Takes events in any order; a line is made only where it is
    kept.
    """

    def __init__(self) -> None:
        self._lines: Newest[LogLine] = Newest(LINES)

    def add(self, event: AnyEvent) -> None:
        """Take one event; those that nobody needs to be told of are passed over."""
        if not self._lines.would_keep(event.timestamp):
            return
        if not isinstance(event, Event) or not (isinstance(event, _BY_TYPE) or type(event).of_user):
            return
        said = line_of(event)
        if said is not None:
            text, level = said
            kind = "alert" if isinstance(event, DeviceMemory) else kind_of(event)
            key = (event.timestamp, f"{type(event).stream} {event.writer}", event.seq, text)
            self._lines.add(
                key, LogLine(at=event.timestamp, kind=cut(kind, NAME), text=cut(text, LINE), level=level)
            )

    def lines(self, more: Sequence[LogLine] = ()) -> list[LogLine]:
        """The newest first; `more` are lines that no event says."""
        return sorted([*more[::-1], *self._lines.items()], key=lambda line: line.at, reverse=True)[:LINES]


def line_of(event: Event) -> tuple[str, Level] | None:
    """An event in words; None for one that is no news."""
    match event:
        case TaskFailed():
            return f"{_task(event)} failed: {_error(event.error_type, event.error_message)}", "error"
        case TaskRetried():
            after = f" in {format_duration(event.delay_s)}" if event.delay_s else ""
            why = f": {first_line(event.reason)}" if event.reason else ""
            return f"{_task(event)} is tried again{after}{why}", "warning"
        case TaskCancelled():
            return f"{_task(event)} was cancelled{_because(event.reason)}", "warning"
        case Failure():
            if event.scope == "task" or event.task_id is not None:
                return None  # its task says so
            return f"{event.scope} failed: {_error(event.error_type, event.message)}", "error"
        case WorkerLaunched():
            return f"worker {cut(event.worker, NAME)} was launched{_on(event.host)}", "info"
        case WorkerReady():
            after = f" after {format_duration(event.launch_s)}" if event.launch_s is not None else ""
            return f"worker {cut(event.worker, NAME)} is ready{after}", "info"
        case WorkerLost():
            return (
                f"worker {cut(event.worker, NAME)} was lost{_because(event.reason or event.signal)}",
                "error",
            )
        case WorkerRemoved():
            return f"worker {cut(event.worker, NAME)} was removed{_because(event.reason)}", "info"
        case ArtifactRecorded():
            size = f", {format_bytes(event.size_bytes)}" if event.size_bytes is not None else ""
            return f"artifact {cut(event.name, NAME)}{size}", "info"
        case JobStarted():
            return (
                f"runs in {event.scheduler} job {cut(event.job_id, NAME)}{_on(event.nodes or event.host)}",
                "info",
            )
        case JobAccounted():
            level: Level = "info" if event.state == "COMPLETED" else "warning"
            return f"job {cut(event.job_id, NAME)} is {cut(event.state, NAME)}{_because(event.reason)}", level
        case UserEvent():
            return _said(event.name, args_text(event.fields)), "info"
        case DeviceMemory():
            return _alert(event)
        case _:
            fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in _COMMON}
            return _said(kind_of(event), args_text(fields)), "info"


_COMMON = frozenset(Event.__struct_fields__)


def _task(event: TaskFailed | TaskRetried | TaskCancelled) -> str:
    again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    return f"{cut(event.task, NAME)} {cut(event.task_id, NAME)}{again}"


def _error(kind: str | None, message: str | None) -> str:
    return (
        ": ".join(part for part in (cut(kind or "", NAME), first_line(message)) if part)
        or "no error was given"
    )


def _because(reason: str | None) -> str:
    return f": {first_line(reason)}" if reason else ""


def _on(host: str | None) -> str:
    return f" on {cut(host, NAME)}" if host else ""


def _said(name: str, fields: str) -> str:
    return f"{cut(name, NAME)}: {fields}" if fields else cut(name, NAME)


def _alert(event: DeviceMemory) -> tuple[str, Level] | None:
    level = _ALERTS.get(event.event_type)
    if level is None:
        return None
    used = f"{format_bytes(event.device_used_bytes)} of {format_bytes(event.device_total_bytes)} in use"
    told = f": {first_line(event.context)}" if event.context else ""
    return (
        f"memory of device {event.device_id} on {cut(event.host, NAME)}, rank {event.rank}: {used}{told}",
        level,
    )

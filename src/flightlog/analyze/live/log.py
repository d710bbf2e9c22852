"""The log of a run and its latest failures: what a person would want to be told; not every task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from flightlog.analyze.least import Newest
from flightlog.analyze.live.results import (
    LINE,
    NAME,
    TRACEBACK,
    Failed,
    LogLine,
    args_text,
    cut,
    cut_end,
    first_line,
)
from flightlog.analyze.report.attempts import attempt_key
from flightlog.analyze.report.failures import cause_of
from flightlog.core.units import format_bytes, format_duration
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
from flightlog.store.read.lines import AnyEvent

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
            return f"{_task(event)} is retried{after}{why}", "warning"
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


LISTED = 50
_MESSAGE = 2_000


class LiveFailures:
    """Takes the failures of two streams in any order; a failed task stands in both, and counts once.

    Memory grows with the causes there are, by four numbers each.
    """

    def __init__(self) -> None:
        self._causes: dict[int, list[int]] = {}
        self._told: Newest[Failure] = Newest(2 * LISTED)
        self._tasks: Newest[TaskFailed] = Newest(2 * LISTED)

    def add(self, event: Failure) -> None:
        """One with its traceback."""
        counts = self._of(event.fingerprint, event.error_type, event.message)
        counts[1 if event.task_id is not None else 2 if event.scope != "run" else 3] += 1
        self._told.add((event.timestamp, event.writer, event.seq, event.task_id or ""), event)

    def failed(self, event: TaskFailed) -> None:
        """A task that failed."""
        self._of(event.fingerprint, event.error_type, event.error_message)[0] += 1
        self._tasks.add((event.timestamp, event.writer, event.seq, event.task_id), event)

    def _of(self, fingerprint: str | None, error_type: str | None, message: str | None) -> list[int]:
        return self._causes.setdefault(hash(cause_of(fingerprint, error_type, message)), [0, 0, 0, 0])

    @property
    def count(self) -> int:
        """All, as the summary counts them."""
        return sum(
            max(failed, told) + elsewhere or of_run
            for failed, told, elsewhere, of_run in self._causes.values()
        )

    def results(self, retried: Mapping[str, str]) -> list[Failed]:
        """The newest first; `retried` has the arguments of the attempts that were tried again, by key."""
        told = {
            (event.task_id, event.attempt or 1): event
            for event in reversed(self._told.items())
            if event.task_id
        }
        found: list[tuple[str, Failed]] = []
        causes: set[tuple[str, ...]] = set()
        taken: set[tuple[str | None, int]] = set()
        for task in self._tasks.items():
            same = (task.task_id, task.attempt)
            taken.add(same)
            causes.add(cause_of(task.fingerprint, task.error_type, task.error_message))
            found.append((task.timestamp, _of_task(task, told.get(same), attempt_key(task) in retried)))
        for event in self._told.items():
            if event.task_id is not None and (event.task_id, event.attempt or 1) in taken:
                continue
            if (
                event.scope == "run"
                and cause_of(event.fingerprint, event.error_type, event.message) in causes
            ):
                continue  # the error of a task that ended the run, too
            found.append((event.timestamp, _of_failure(event, retried)))
        found.sort(key=lambda one: one[0], reverse=True)
        return [failed for _, failed in found[:LISTED]]


def _of_task(task: TaskFailed, told: Failure | None, retried: bool) -> Failed:
    return Failed(
        at=task.timestamp,
        task=cut(task.task, NAME),
        task_id=cut(task.task_id, NAME),
        attempt=task.attempt,
        args=args_text(task.args),
        worker=task.worker if task.worker is None else cut(task.worker, NAME),
        error_type=_short(task.error_type),
        message=cut(task.error_message or "", _MESSAGE),
        traceback=None if told is None else _text_of(told),
        retried=retried,
        fingerprint=_short(task.fingerprint),
    )


def _of_failure(event: Failure, retried: Mapping[str, str]) -> Failed:
    attempt = event.attempt or 1
    key = event.task_id if attempt == 1 else f"{event.task_id}\0{attempt}"
    return Failed(
        at=event.timestamp,
        task=cut(event.task, NAME) if event.task else {"run": "the run"}.get(event.scope, f"a {event.scope}"),
        task_id=_short(event.task_id),
        attempt=attempt,
        args=retried.get(key or "", ""),
        worker=_short(event.worker),
        error_type=_short(event.error_type),
        message=cut(event.message or "", _MESSAGE),
        traceback=_text_of(event),
        retried=key in retried,
        fingerprint=_short(event.fingerprint),
    )


def _short(text: str | None) -> str | None:
    return None if text is None else cut(text, LINE)


def _text_of(event: Failure) -> str | None:
    return cut_end(event.traceback or event.output_tail, TRACEBACK)

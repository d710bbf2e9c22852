"""The latest of a run: lines of its log, failures, and attempts as a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from flightlog.analyze.charts.layout import pack
from flightlog.analyze.charts.results import Bars, Timeline, TimelineMark, TimelineRow
from flightlog.analyze.failures import cause_of
from flightlog.analyze.live.results import LINE, NAME, TRACEBACK, Failed, LogLine, args_text
from flightlog.analyze.live.tasks import Attempt, LiveTasks
from flightlog.analyze.tallies import Newest
from flightlog.core.text import cut, cut_end, first_line
from flightlog.core.time import SECOND, timestamp_of
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


class LiveLog:
    """The last lines of all streams together. Takes events in any order; a line is made only where it is
    kept.
    """

    def __init__(self) -> None:
        self._lines: Newest[LogLine] = Newest(LINES)

    def add(self, event: AnyEvent) -> None:
        """Take one event; kinds that are not logged are ignored."""
        if not self._lines.would_keep(event.timestamp) or not isinstance(event, Event):
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
        """The newest first; `more` are lines that come from no event."""
        return sorted([*more[::-1], *self._lines.items()], key=lambda line: line.at, reverse=True)[:LINES]


def line_of(event: Event) -> tuple[str, Level] | None:
    """An event in words; None where it is not logged."""
    match event:
        case TaskFailed():
            return f"{_task(event)} failed: {_error(event.error_type, event.error_message)}", "error"
        case TaskRetried():
            after = f" in {format_duration(event.delay_s)}" if event.delay_s else ""
            why = f": {first_line(event.reason, LINE)}" if event.reason else ""
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
        case _ if type(event).of_user:
            fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in _COMMON}
            return _said(kind_of(event), args_text(fields)), "info"
        case _:
            return None


_COMMON = frozenset(Event.__struct_fields__)


def _task(event: TaskFailed | TaskRetried | TaskCancelled) -> str:
    again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    return f"{cut(event.task, NAME)} {cut(event.task_id, NAME)}{again}"


def _error(kind: str | None, message: str | None) -> str:
    return (
        ": ".join(part for part in (cut(kind or "", NAME), first_line(message, LINE)) if part)
        or "no error was given"
    )


def _because(reason: str | None) -> str:
    return f": {first_line(reason, LINE)}" if reason else ""


def _on(host: str | None) -> str:
    return f" on {cut(host, NAME)}" if host else ""


def _said(name: str, fields: str) -> str:
    return f"{cut(name, NAME)}: {fields}" if fields else cut(name, NAME)


def _alert(event: DeviceMemory) -> tuple[str, Level] | None:
    level = _ALERTS.get(event.event_type)
    if level is None:
        return None
    used = f"{format_bytes(event.device_used_bytes)} of {format_bytes(event.device_total_bytes)} in use"
    told = f": {first_line(event.context, LINE)}" if event.context else ""
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

    def results(self, tasks: LiveTasks) -> list[Failed]:
        """The newest first; `tasks` knows which were retried, and the arguments of attempts."""
        told = {(event.task_id, event.attempt or 1): event for event in reversed(self._told.items())}
        failed = {(task.task_id, task.attempt): task for task in reversed(self._tasks.items())}
        causes = {cause_of(one.fingerprint, one.error_type, one.error_message) for one in failed.values()}
        found = [_of_task(task, told.get(same), tasks.find(*same)) for same, task in reversed(failed.items())]
        for event in self._told.items():
            cause = cause_of(event.fingerprint, event.error_type, event.message)
            in_task = (event.task_id, event.attempt or 1) in failed
            if not in_task and (event.scope != "run" or cause not in causes):  # which a task's may be, too
                found.append(_of_failure(event, tasks))
        return sorted(found, key=lambda one: one.at, reverse=True)[:LISTED]


def _failed(event: TaskFailed | Failure, told: Failure | None, known: Attempt | None, **about: Any) -> Failed:
    """A failure, with the traceback that `told` has of it, and its attempt, where that is known."""
    message = event.message if isinstance(event, Failure) else event.error_message
    return Failed(
        at=event.timestamp,
        attempt=event.attempt or 1,
        worker=_short(event.worker),
        error_type=_short(event.error_type),
        message=cut(message or "", _MESSAGE),
        traceback=None if told is None else cut_end(told.traceback or told.output_tail, TRACEBACK),
        retried=known is not None and known.retried,
        fingerprint=_short(event.fingerprint),
        **about,
    )


def _of_task(task: TaskFailed, told: Failure | None, known: Attempt | None) -> Failed:
    named, task_id = cut(task.task, NAME), cut(task.task_id, NAME)
    return _failed(task, told, known, task=named, task_id=task_id, args=args_text(task.args))


def _of_failure(event: Failure, tasks: LiveTasks) -> Failed:
    known = tasks.find(event.task_id or "", event.attempt or 1)
    args = args_text(tasks.args_of(known)) if known is not None and known.retried else ""
    of_scope = "the run" if event.scope == "run" else f"a {event.scope}"
    named = cut(event.task, NAME) if event.task else of_scope
    return _failed(event, event, known, task=named, task_id=_short(event.task_id), args=args)


def _short(text: str | None) -> str | None:
    return None if text is None else cut(text, LINE)


LANES = 60
ONGOING = 200
COLOURS = 10
NOWHERE = "no worker"


class _Bar(NamedTuple):
    begin: int
    end: int
    one: Attempt


def live_timeline(
    tasks: LiveTasks, running: Iterable[Attempt], *, until: int, workers: int
) -> Timeline | None:
    """The last attempts in rows of their workers, by name; null where nothing ran whose time is known."""
    last, names = tasks.last.items(), tasks.names.busiest(COLOURS)
    bars = [_Bar(*one.ran, one) for one in last if one.ran is not None]
    going = sorted(
        (_Bar(since, max(since, until), one) for one in running if (since := one.since) is not None),
        key=lambda bar: (bar.begin, bar.one.order),
    )
    bars += going[:ONGOING]
    if not bars:
        return None
    lanes, placed, left_out = _in_lanes(bars)
    began = [bar.begin for bar, _ in placed if bar.one.state != "running"] or [bar.begin for bar, _ in placed]
    since = min(began)
    length = max(0, max(until, *(bar.end for bar, _ in placed)) - since)
    index = {name: place for place, name in enumerate(names)}
    counts = tasks.names.totals()
    notes = []
    if left_out:
        notes.append(f"{left_out:,} attempts on workers beyond {LANES} rows are not drawn")
    if tasks.ended > len(last):
        notes.append(f"the last {len(last):,} of {tasks.ended:,} attempts that ended")
    return Timeline(
        since=timestamp_of(since),
        length_s=length / SECOND,
        names=[cut(name, NAME) for name in names],
        lanes=lanes,
        bars=Bars(
            lane=[lane for _, lane in placed],
            start_s=[_s(max(bar.begin, since) - since) for bar, _ in placed],
            length_s=[_s(bar.end - max(bar.begin, since)) for bar, _ in placed],
            name=[index.get(bar.one.last.task, -1) for bar, _ in placed],
            state=[bar.one.outcome for bar, _ in placed],
            task_id=[cut(bar.one.last.task_id, NAME) for bar, _ in placed],
            attempt=[bar.one.last.attempt for bar, _ in placed],
        ),
        cells=None,
        marks=[
            _mark(bar, lane, since) for bar, lane in placed if bar.one.state not in {"completed", "running"}
        ],
        attempts=tasks.ended + len(going),
        workers=workers,
        failures=counts["failed"] + counts["retries"],
        notes=notes,
    )


def _s(duration: int) -> float:
    return round(max(0, duration) / SECOND, 6)


def _mark(bar: _Bar, lane: int, since: int) -> TimelineMark:
    one = bar.one
    kind: Literal["failed", "retried", "cancelled"] = one.outcome  # type: ignore[assignment]
    if isinstance(one.end, TaskFailed):
        said = (one.end.error_type, first_line(one.end.error_message, LINE))
        text = ": ".join(part for part in said if part)
    else:
        text = first_line(getattr(one.end or one.retry, "reason", None), LINE)
    return TimelineMark(
        lane=lane,
        at_s=_s(bar.end - since),
        kind=kind,
        task=cut(one.last.task, NAME),
        task_id=cut(one.last.task_id, NAME),
        text=text,
    )


def _in_lanes(bars: list[_Bar]) -> tuple[list[TimelineRow], list[tuple[_Bar, int]], int]:
    """Rows of the workers, several for one that executes side by side, the bars with their rows, and how many
    have none.
    """
    workers = sorted({bar.one.worker for bar in bars if bar.one.worker is not None})
    place: dict[str | None, int] = {worker: number for number, worker in enumerate(workers)}
    bars = sorted(bars, key=lambda bar: (bar.one.worker or "", bar.begin, bar.end, bar.one.order[1:]))
    pieces = [(place.get(bar.one.worker, -1), bar.begin, bar.end) for bar in bars]
    packed = pack(pieces, workers, {}, NOWHERE, idle=False)
    placed = [(bar, lane) for bar, lane in zip(bars, packed.lane, strict=True) if lane < LANES]
    return packed.lanes[:LANES], placed, len(bars) - len(placed)

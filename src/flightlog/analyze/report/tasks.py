"""Tasks: attempts put together from events in any order, counts, durations and waits, the slow, those in
flight and whether they take longer than usual, and concurrency.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from flightlog.analyze.report.interval_tables import most_at_once
from flightlog.analyze.tallies import Least, MetricStats, MetricTally, copied
from flightlog.core.intervals import Intervals, length, overlap, peak
from flightlog.core.stats import Distribution, distribution, exact_sum
from flightlog.core.time import SECOND, moment, nanoseconds, seconds, timestamp_of
from flightlog.events import (
    Event,
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.events.base import Json
from flightlog.events.declarations import attempt_key

if TYPE_CHECKING:
    import duckdb

    from flightlog.analyze.report.spans import SpanName
    from flightlog.analyze.report.summary import Summary

SLOWEST = 10
IN_FLIGHT = 100
NAMES = 1000
"""How many of each a summary lists; counts beside the lists are of all."""


class TaskRow(Struct, frozen=True, kw_only=True):
    """One completed task."""

    task: str
    task_id: str
    args: Json
    duration_s: float
    worker: str | None


class TaskInFlight(Struct, frozen=True, kw_only=True):
    """An attempt that started, and whose end was not recorded."""

    task: str
    task_id: str
    attempt: int
    args: Json | None
    worker: str | None
    since: str
    elapsed_s: float | None
    """Up to the run's end or last sign of life."""


class TaskName(Struct, frozen=True, kw_only=True):
    """All tasks of one name."""

    submitted: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    running: int
    duration_s: Distribution
    """Of completed tasks."""
    failed_s: float
    """Time spent in attempts that failed or were cancelled."""
    cpu_s: float | None
    """CPU time of all ended attempts that know it."""
    cpu_scopes: list[str]
    """What their CPU time covers; that of a whole process counts other threads in."""
    peak_rss_bytes: int | None
    rss_scopes: list[str]
    """Whose memory; with `process_at_least` the peak is a lower bound of what the tasks themselves need."""
    read_bytes: int | None
    write_bytes: int | None
    metrics: dict[str, MetricStats]
    gpu_peak_bytes: int | None = None
    gpu_memory_scopes: list[str] = []
    """Whose GPU memory; of `device` others' is counted in, and `allocator_at_least` is a lower bound."""
    gpu_s: float | None = None
    """GPU time of all ended attempts that know it."""
    gpu_scopes: list[str] = []
    """Whose GPU time: with `device` others' is counted in, and that of attempts at one time more than
    once."""


class TaskSummary(Struct, frozen=True, kw_only=True):
    """All tasks. `failed` counts tasks that failed for good: a retried attempt counts in `retried` alone."""

    submitted: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    running: int
    """Attempts started without an end."""
    pending: int
    """Submitted, and never seen to start."""
    duration_s: Distribution
    """Execution alone, of completed tasks."""
    queue_s: Distribution
    """From submission to start, of all attempts that know it."""
    failed_s: float
    names: int
    by_name: dict[str, TaskName]
    slowest: list[TaskRow]
    in_flight: list[TaskInFlight]


class TaskTally:
    """Takes the events of the stream `tasks` in any order; 16 to 24 bytes stay of a task that ended."""

    def __init__(self) -> None:
        self.attempts = Attempts()
        self.by_worker: dict[str, WorkerTasks] = {}
        self._names: dict[str, TaskNameTally] = {}
        self._queued = array("d")
        self._slowest: Least[TaskCompleted] = Least(SLOWEST)

    def add(self, event: Event) -> None:
        """Take one event; other kinds are ignored."""
        if isinstance(event, TaskEnded):
            self._ended(event)
        elif isinstance(event, TaskStarted):
            self._queue(self.attempts.started(event))
        elif isinstance(event, TaskSubmitted):
            self._name(event.task).submitted += 1
            self.attempts.submitted(event)
        elif isinstance(event, TaskRetried):
            self._name(event.task).retried += 1
            self.attempts.retried(event)

    def _ended(self, event: TaskEnded) -> None:
        self._queue(self.attempts.ended(event))
        name = self._name(event.task)
        name.use(event)
        worker = self._worker(event.worker)
        if isinstance(event, TaskCompleted):
            name.completed += 1
            if event.duration_s is not None:
                name.durations.append(event.duration_s)
                worker.completed.append(event.duration_s)
                self._slowest.add((-event.duration_s, event.task, event.task_id, event.attempt), event)
        else:
            name.cancelled += isinstance(event, TaskCancelled)
            if event.duration_s is not None:
                name.lost.append(event.duration_s)
        worker.attempts += 1

    def _queue(self, queue_s: float | None) -> None:
        if queue_s is not None:
            self._queued.append(queue_s)

    def _name(self, task: str) -> TaskNameTally:
        found = self._names.get(task)
        if found is None:
            found = self._names[task] = TaskNameTally()
        return found

    def _worker(self, worker: str | None) -> WorkerTasks:
        if worker is None:
            return WorkerTasks()
        found = self.by_worker.get(worker)
        if found is None:
            found = self.by_worker[worker] = WorkerTasks()
        return found

    def in_flight(self) -> list[TaskStarted]:
        """The oldest attempts without an end, `IN_FLIGHT` at most."""
        oldest: Least[TaskStarted] = Least(IN_FLIGHT)
        for start in self.attempts.in_flight():
            oldest.add((start.timestamp, start.task, start.task_id, start.attempt), start)
        return oldest.items()

    def summary(self, until: int | None, args: dict[str, Json]) -> TaskSummary:
        """The result, once, after all events; `args` are the arguments of tasks in flight, by task id."""
        self._queued.extend(self.attempts.close(until))
        for start in self.attempts.in_flight():
            self._name(start.task).running += 1
            self._worker(start.worker).attempts += 1
        for task in self.attempts.failures():
            self._name(task).failed += 1
        tallies = self._names.values()
        return summary_of(
            self._names,
            pending=self.attempts.pending(),
            queue_s=distribution(self._queued),
            duration_s=distribution(chain.from_iterable(name.durations for name in tallies)),
            failed_s=exact_sum(chain.from_iterable(name.lost for name in tallies)),
            slowest=[copied(TaskRow, event) for event in self._slowest.items()],
            in_flight=[in_flight_row(start, until, args.get(start.task_id)) for start in self.in_flight()],
        )

    def work(self) -> TalliedWork:
        """What the workers had to do, after `summary`."""
        return TalliedWork(self.attempts.occupied, self.by_worker)


def summary_of(
    names: Mapping[str, TaskNameTally],
    *,
    pending: int,
    queue_s: Distribution,
    duration_s: Distribution,
    failed_s: float,
    slowest: list[TaskRow],
    in_flight: list[TaskInFlight],
) -> TaskSummary:
    """The summary of all tasks, from the tallies of their names."""
    tallies = names.values()
    listed = sorted(names, key=lambda name: (-names[name].size(), name))[:NAMES]
    return TaskSummary(
        submitted=sum(name.submitted for name in tallies),
        completed=sum(name.completed for name in tallies),
        failed=sum(name.failed for name in tallies),
        cancelled=sum(name.cancelled for name in tallies),
        retried=sum(name.retried for name in tallies),
        running=sum(name.running for name in tallies),
        pending=pending,
        duration_s=duration_s,
        queue_s=queue_s,
        failed_s=failed_s,
        names=len(names),
        by_name={name: names[name].summary() for name in sorted(listed)},
        slowest=slowest,
        in_flight=in_flight,
    )


class WorkerTasks:
    """What one worker had to do."""

    __slots__ = ("attempts", "completed")

    def __init__(self) -> None:
        self.attempts = 0
        self.completed = array("d")


class TalliedWork:
    """What the workers had to do, as attempts tell it."""

    def __init__(self, occupied: Mapping[str, Intervals], tasks: Mapping[str, WorkerTasks]) -> None:
        self._occupied = occupied
        self.attempts = {name: work.attempts for name, work in tasks.items()}
        self.completed_s = exact_sum(chain.from_iterable(work.completed for work in tasks.values()))

    def bounds(self) -> dict[str, tuple[int, int] | None]:
        """The first start and the last end on each worker; None where no time is known."""
        return {
            **dict.fromkeys(self.attempts),
            **{name: held.bounds() for name, held in self._occupied.items()},
        }

    def busy(self, ups: Mapping[str, list[tuple[int, int]]]) -> tuple[dict[str, int], int]:
        """For how many nanoseconds each worker was held while it was up, and how many were at once at
        most.
        """
        busies = {
            name: overlap(self._occupied[name].union(), up) if name in self._occupied else []
            for name, up in ups.items()
        }
        return {name: length(spans) for name, spans in busies.items()}, peak(
            chain.from_iterable(busies.values())
        )


class TaskNameTally:
    """The tally of one task name."""

    def __init__(self) -> None:
        self.submitted = self.completed = self.failed = self.cancelled = self.retried = self.running = 0
        self.durations, self.lost, self.cpu = array("d"), array("d"), array("d")
        self.cpu_scopes: set[str] = set()
        self.rss_scopes: set[str] = set()
        self.peak: int | None = None
        self.read: int | None = None
        self.write: int | None = None
        self.metrics = MetricTally()
        self.gpu = array("d")
        self.gpu_peak: int | None = None
        self.gpu_memory_scopes: set[str] = set()
        self.gpu_scopes: set[str] = set()

    def use(self, event: TaskEnded) -> None:
        """Take what an attempt used and measured."""
        if event.cpu_s is not None:
            self.cpu.append(event.cpu_s)
            self.cpu_scopes.add(event.cpu_scope or "unknown")
        if event.peak_rss_bytes is not None:
            self.peak = max(self.peak or 0, event.peak_rss_bytes)
            self.rss_scopes.add(event.rss_scope or "unknown")
        if event.read_bytes is not None:
            self.read = (self.read or 0) + event.read_bytes
        if event.write_bytes is not None:
            self.write = (self.write or 0) + event.write_bytes
        if event.gpu_peak_bytes is not None:
            self.gpu_peak = max(self.gpu_peak or 0, event.gpu_peak_bytes)
            self.gpu_memory_scopes.add(event.gpu_memory_scope or "unknown")
        if event.gpu_s is not None:
            self.gpu.append(event.gpu_s)
            self.gpu_scopes.add(event.gpu_scope or "unknown")
        if event.metrics:
            self.metrics.take(event.metrics, (event.timestamp, event.writer, event.seq))

    def spread(self) -> Distribution:
        """Of the durations of completed ones."""
        return distribution(self.durations)

    def lost_s(self) -> float:
        """The durations of those that did not complete."""
        return exact_sum(self.lost)

    def cpu_s(self) -> float | None:
        """Of all attempts that know it."""
        return exact_sum(self.cpu) if self.cpu else None

    def gpu_s(self) -> float | None:
        """Of all attempts that know it."""
        return exact_sum(self.gpu) if self.gpu else None

    def size(self) -> int:
        """How much there is of it."""
        return max(self.submitted, self.completed + self.failed + self.cancelled + self.running)

    def summary(self) -> TaskName:
        """The result."""
        return TaskName(
            submitted=self.submitted,
            completed=self.completed,
            failed=self.failed,
            cancelled=self.cancelled,
            retried=self.retried,
            running=self.running,
            duration_s=self.spread(),
            failed_s=self.lost_s(),
            cpu_s=self.cpu_s(),
            cpu_scopes=sorted(self.cpu_scopes),
            peak_rss_bytes=self.peak,
            rss_scopes=sorted(self.rss_scopes),
            read_bytes=self.read,
            write_bytes=self.write,
            metrics=self.metrics.stats(),
            gpu_peak_bytes=self.gpu_peak,
            gpu_memory_scopes=sorted(self.gpu_memory_scopes),
            gpu_s=self.gpu_s(),
            gpu_scopes=sorted(self.gpu_scopes),
        )


def task_row(task: str, task_id: str, args: str | None, duration_s: float, worker: str | None) -> TaskRow:
    """One completed task, with its arguments as JSON."""
    found: Json = msgspec.json.decode(args or "{}")
    return TaskRow(task=task, task_id=task_id, args=found, duration_s=duration_s, worker=worker)


def in_flight_row(start: TaskStarted, until: int | None, args: Json | None) -> TaskInFlight:
    """One that never ended, with its arguments where they are known."""
    began = moment(start.timestamp)
    elapsed = None if began is None or until is None else seconds(max(0, until - began))
    return copied(TaskInFlight, start, args=args, since=start.timestamp, elapsed_s=elapsed)


def args_of(events: Iterable[Event], wanted: set[str]) -> dict[str, Json]:
    """The arguments of these tasks, by task id, from their submissions."""
    return {
        event.task_id: event.args
        for event in events
        if isinstance(event, TaskSubmitted) and event.task_id in wanted
    }


BUCKETS = 60


class Concurrency(Struct, frozen=True, kw_only=True):
    """Attempts running at once: means over equal buckets of the run's time, and the most there ever were.

    An attempt counts while it executes; one that ended the moment another began was not beside it.
    """

    since: str
    bucket_s: float
    running: list[float]
    """Mean number running in each bucket, from `since` on."""
    mean: float
    """Over the whole time of the run."""
    peak: int
    peak_at: str | None
    """When `peak` ran at once for the first time."""


def concurrency(
    connection: duckdb.DuckDBPyConnection,
    window: tuple[int | None, int | None],
    buckets: int = BUCKETS,
    *,
    most: tuple[int, int] | None = None,
) -> Concurrency | None:
    """Concurrency between the run's start and its end, from its `attempt_intervals` table; None where nothing
    ran or no time passed.

    What ran outside of these bounds, by clocks that disagree, is left out of the means. `most` is how many
    ran at once at most, and when first, where that is known.
    """
    start, until = window
    if start is None or until is None or until <= start:
        return None
    most = most or most_at_once(
        connection, "SELECT began AS since, stopped AS until FROM attempt_intervals WHERE began IS NOT NULL"
    )
    if most is None:
        return None
    bounds = [start + (until - start) * n // buckets for n in range(buckets + 1)]
    done = _work_until(connection, bounds)
    running = [
        (done[n + 1] - done[n]) / (bounds[n + 1] - bounds[n]) if bounds[n + 1] > bounds[n] else 0.0
        for n in range(buckets)
    ]
    return Concurrency(
        since=timestamp_of(start),
        bucket_s=(until - start) / buckets / SECOND,
        running=running,
        mean=seconds(done[-1] - done[0]) / seconds(until - start),
        peak=most[0],
        peak_at=timestamp_of(most[1]),
    )


def _work_until(connection: duckdb.DuckDBPyConnection, bounds: list[int]) -> list[int]:
    """Nanoseconds of execution done up to each bound.

    Up to a moment t an attempt has done t - began, less t - stopped once it has stopped: sums over those that
    began and stopped in each bucket are enough, however many attempts there are.
    """
    start, until, buckets = bounds[0], bounds[-1], len(bounds) - 1
    done = [0] * len(bounds)
    for column, sign in (("began", 1), ("stopped", -1)):
        count = total = 0
        found = {
            int(bucket): (int(number), int(sum_))
            for bucket, number, sum_ in connection.execute(
                f"""
                SELECT (greatest(0, {column} - $start)::HUGEINT * $buckets // ($until - $start)) + 1 AS
                    bucket,
                    count(*), sum(greatest(0, {column} - $start))
                FROM attempt_intervals WHERE began IS NOT NULL AND {column} < $until GROUP BY bucket
                """,  # noqa: S608 - the column is one of two
                {"start": start, "until": until, "buckets": buckets},
            ).fetchall()
        }
        for n in range(1, len(bounds)):
            number, sum_ = found.get(n, (0, 0))
            count, total = count + number, total + sum_
            done[n] += sign * (count * (bounds[n] - start) - total)
    return done


class End(NamedTuple):
    """What is needed of an attempt whose end was read before its start."""

    at: int | None
    worker: str | None
    duration_s: float | None
    queue_s: float | None


class Attempts:
    """Pairs starts with ends, and submissions with signs of life.

    Holds what is unpaired at the moment: little while events stand in order, everything where one kind of
    event is missing altogether. After `close`, `occupied` has the time each worker was held by attempts.
    """

    def __init__(self) -> None:
        self.occupied: dict[str, Intervals] = {}
        self._starts: dict[str, TaskStarted] = {}
        self._ends: dict[str, End] = {}
        self._waiting: set[str] = set()
        self._begun: set[str] = set()
        self._retried: dict[str, int | None] = {}
        self._failed: dict[str, str] = {}

    def submitted(self, event: TaskSubmitted) -> None:
        """A submission; it waits until its task shows a sign of life."""
        if event.task_id in self._begun:
            self._begun.remove(event.task_id)
        else:
            self._waiting.add(event.task_id)

    def started(self, event: TaskStarted) -> float | None:
        """A start; gives the queueing time in seconds where the attempt is complete with it."""
        key = attempt_key(event)
        end = self._ends.pop(key, None)
        if end is None:
            self._starts[key] = event
            self._show_life(event.task_id)
            return None
        return self._pair(event, end)

    def ended(self, event: TaskEnded) -> float | None:
        """An end; gives the queueing time in seconds where the attempt is complete with it."""
        key = attempt_key(event)
        if type(event) is TaskFailed:
            self._failed[key] = event.task
        end = End(moment(event.timestamp), event.worker, event.duration_s, event.queue_s)
        start = self._starts.pop(key, None)
        if start is None:
            self._ends[key] = end
            self._show_life(event.task_id)
            return None
        return self._pair(start, end)

    def retried(self, event: TaskRetried) -> None:
        """The attempt is over, and the task is not."""
        self._retried[attempt_key(event)] = moment(event.timestamp)

    def close(self, until: int | None) -> list[float]:
        """Take what found no partner as it is; gives the queueing times not given before.

        An attempt without an end holds its worker up to its retry, or to `until`.
        """
        queued = [self._pair(None, end) for end in self._ends.values()]
        for key, start in self._starts.items():
            self._occupy(start.worker, moment(start.timestamp), self._retried.get(key, until))
            queued.append(start.queue_s)
        return [queue_s for queue_s in queued if queue_s is not None]

    def failures(self) -> list[str]:
        """The name of the task of each failed attempt that was not retried."""
        return [name for key, name in self._failed.items() if key not in self._retried]

    def pending(self) -> int:
        """Tasks that were submitted and never seen to start or end."""
        return len(self._waiting)

    def in_flight(self) -> list[TaskStarted]:
        """Attempts that began and have no end, in no particular order."""
        return [start for key, start in self._starts.items() if key not in self._retried]

    def _show_life(self, task_id: str) -> None:
        if task_id in self._waiting:
            self._waiting.remove(task_id)
        else:
            self._begun.add(task_id)

    def _pair(self, start: TaskStarted | None, end: End) -> float | None:
        worker = end.worker if start is None or end.worker is not None else start.worker
        if end.duration_s is not None and end.at is not None:
            self._occupy(worker, end.at - nanoseconds(end.duration_s), end.at)
        elif start is not None:
            self._occupy(worker, moment(start.timestamp), end.at)
        return end.queue_s if end.queue_s is not None or start is None else start.queue_s

    def _occupy(self, worker: str | None, start: int | None, end: int | None) -> None:
        if worker is not None and start is not None and end is not None:
            held = self.occupied.get(worker)
            if held is None:
                held = self.occupied[worker] = Intervals()
            held.add(start, end)


ENOUGH = 5
"""How many ended ones it takes to say what is usual."""
FAR = 3.0
"""How many times p95 is far beyond usual."""


class UsualDuration(Struct, frozen=True, kw_only=True):
    """How long the ended ones of one name took."""

    count: int
    p50: float
    p95: float
    max: float
    of: Literal["run", "history"]
    """Where they ended: in this run, or in earlier ones."""


class InFlight(Struct, frozen=True, kw_only=True):
    """A task or span that began and has no end."""

    kind: Literal["task", "span"]
    name: str
    task_id: str | None
    args: Json | None
    worker: str | None
    since: str
    elapsed_s: float | None
    """Up to the run's end or last sign of life."""
    usual: UsualDuration | None
    """Null where fewer than five of its name have ended."""
    ratio: float | None
    """elapsed_s over the usual median."""
    stuck: bool | None
    """Whether it took longer than all that ended, and than three times their p95; null where nothing is
    usual."""


def in_flight(summary: Summary, history: Mapping[str, Distribution] | None = None) -> list[InFlight]:
    """What is in flight, the stuck first, then the longest; the summary lists the oldest hundred of each
    kind.

    `history` has the durations of completed tasks of earlier runs by name; it is asked for a task of which
    this run knows fewer than five, and for nothing else.
    """
    found: list[InFlight] = []
    for task in summary.tasks.in_flight:
        name = summary.tasks.by_name.get(task.task)
        usual = _usual(name.duration_s, "run") if name is not None else None
        usual = usual or _usual((history or {}).get(task.task), "history")
        found.append(copied(InFlight, task, kind="task", name=task.task, **_compared(task.elapsed_s, usual)))
    for span in summary.spans.in_flight:
        compared = _compared(span.elapsed_s, _usual(summary.spans.by_name.get(span.name), "run"))
        nothing = {"task_id": None, "worker": None}
        found.append(copied(InFlight, span, kind="span", args=span.tags, **nothing, **compared))
    return sorted(found, key=lambda one: (not one.stuck, -(one.elapsed_s or 0.0), one.since, one.name))


def _usual(ended: Distribution | SpanName | None, of: Literal["run", "history"]) -> UsualDuration | None:
    if ended is None or ended.count < ENOUGH or None in (ended.p50, ended.p95, ended.max):
        return None
    return copied(UsualDuration, ended, of=of)


def _compared(elapsed_s: float | None, usual: UsualDuration | None) -> dict[str, Any]:
    """What is usual, and how the time so far compares with it."""
    if usual is None or elapsed_s is None:
        return {"usual": None, "ratio": None, "stuck": None}
    ratio = elapsed_s / usual.p50 if usual.p50 > 0 else None
    return {"usual": usual, "ratio": ratio, "stuck": elapsed_s > max(FAR * usual.p95, usual.max)}

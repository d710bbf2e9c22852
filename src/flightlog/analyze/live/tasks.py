"""Where the tasks of a run are now, by name and in all, from events that come in any order and never
twice.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from flightlog.analyze.live.levels import Level
from flightlog.analyze.live.results import NAME, LiveTaskName
from flightlog.analyze.predict.eta import ENOUGH, KnownDurations, from_durations, of_mean
from flightlog.analyze.tallies import Least, Newest
from flightlog.core.stats import exact_sum, mean_of, place_of, quantile
from flightlog.core.text import cut
from flightlog.core.time import SECOND, moment, nanoseconds
from flightlog.events import (
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
from flightlog.store.read.lines import AnyEvent

SLOWEST = 20
BARS = 500
"""Number of the latest attempts that are kept one by one."""
ARGS_KEPT = 50_000
"""Number of waiting tasks whose arguments are kept until they start."""


class LiveAttempt(Struct):
    """One that began and has no end."""

    event: TaskStarted
    at: int | None
    tally: NameTally
    args: Json | None


class EndedAttempt(Struct, gc=False):
    """An attempt that is over: the event of its end, or that of its start where it was given up and
    retried.
    """

    event: TaskEnded | TaskStarted
    began: int | None
    at: int | None
    args: Json | None
    retry: TaskRetried | None = None


class LiveTasks:
    """Pairs submissions with starts, starts with ends, and failures with retries, as the summary does.

    Keeps what has no partner yet (tasks that wait or run, failures without a retry), a
    few numbers a name, and the last attempts.
    """

    def __init__(
        self,
        on_start: Callable[[TaskStarted, int | None], None],
        on_end: Callable[[EndedAttempt], None],
        on_trouble: Callable[[TaskFailed | TaskRetried | TaskCancelled], None],
    ) -> None:
        """Who else is to know: of starts with their moments, of ends, and of what did not go well."""
        self.names = TaskNames()
        self.attempts = 0
        self.first: int | None = None
        """When the first attempt began, as far as is known."""
        self.running_level, self.waiting_level, self.ended_level = Level(), Level(), Level()
        self.slowest: Least[TaskCompleted] = Least(SLOWEST)
        self.last: Newest[EndedAttempt] = Newest(BARS)
        self.retries: Newest[str] = Newest(4 * BARS)
        """Retried attempts, by key."""
        self.starts: dict[str, LiveAttempt] = {}
        self._on_start, self._on_end, self._on_trouble = on_start, on_end, on_trouble
        self._waiting: dict[str, Json | None] = {}
        self._begun: dict[str, int | None] = {}
        self._ends: dict[str, EndedAttempt | None] = {}
        """Ends without a start; what is known of the attempt where it is not known how long it took."""
        self._failed: dict[str, tuple[NameTally, Json | None]] = {}
        self._retried: dict[str, TaskRetried | None] = {}
        """Retries of attempts whose end was not seen; null where the start was."""
        self._args: dict[str, Json | None] = {}
        """Arguments of retried tasks."""
        self._takes: dict[type[AnyEvent], Callable[[Any], None]] = {
            TaskSubmitted: self._submitted,
            TaskStarted: self._started,
            TaskRetried: self._retry,
            TaskCompleted: self._completed,
            TaskFailed: self._fail,
            TaskCancelled: self._cancel,
        }

    def add(self, event: AnyEvent) -> None:
        """Take one event; other kinds are ignored."""
        take = self._takes.get(type(event))
        if take is not None:
            take(event)

    @property
    def waiting(self) -> int:
        """Tasks that were submitted and never seen to start or end."""
        return len(self._waiting)

    def args_of(self, one: LiveAttempt | EndedAttempt) -> Json | None:
        """The arguments of an attempt, as far as they are known."""
        return one.args if one.args is not None else self._args.get(one.event.task_id)

    def running(self) -> list[LiveAttempt]:
        """Attempts that began and have no end, in no particular order."""
        return list(self.starts.values())

    def _submitted(self, event: TaskSubmitted) -> None:
        self.names.of(event.task).submitted += 1
        task_id, at = event.task_id, moment(event.timestamp)
        self.waiting_level.add(at, 1)
        if task_id not in self._begun:
            self._waiting[task_id] = event.args if len(self._waiting) < ARGS_KEPT else None
            return
        began = self._begun.pop(task_id)
        self.waiting_level.add(at if began is None else began, -1)
        start = self.starts.get(task_id)
        if start is not None and start.args is None:
            start.args = event.args
        if task_id in self._args:
            self._args[task_id] = event.args

    def _show_life(self, task_id: str, at: int | None) -> Json | None:
        if task_id in self._waiting:
            self.waiting_level.add(at, -1)
            return self._waiting.pop(task_id)
        known = self._begun.get(task_id)
        if known is None or (at is not None and at < known):
            self._begun[task_id] = at
        return None

    def _started(self, event: TaskStarted) -> None:
        key, at = attempt_key(event), moment(event.timestamp)
        if at is not None and (self.first is None or at < self.first):
            self.first = at
        self._on_start(event, at)
        if key in self._ends:
            done = self._ends.pop(key)
            if done is not None:
                done.began = at
                self._held(at, done.at)
            return
        args = self._show_life(event.task_id, at)
        if event.attempt > 1 and args is not None:
            self._args[event.task_id] = args
        start = LiveAttempt(event, at, self.names.of(event.task), args)
        retry = self._retried.get(key)
        if retry is not None:
            self._give_up(key, start, retry)
        else:
            start.tally.running += 1
            self.starts[key] = start

    def _give_up(self, key: str, start: LiveAttempt, retry: TaskRetried) -> None:
        """The attempt is over, though it has no end of its own, and perhaps never will."""
        at = moment(retry.timestamp)
        self._retried[key] = None
        self._held(start.at, at)
        done = EndedAttempt(start.event, start.at, at, start.args, retry)
        self.last.add((retry.timestamp, retry.writer, retry.seq, key), done)

    def _retry(self, event: TaskRetried) -> None:
        key = attempt_key(event)
        self.names.of(event.task).retried += 1
        self.retries.add((event.timestamp, event.writer, event.seq, key), key)
        self._on_trouble(event)
        failed = self._failed.pop(key, None)
        if failed is not None:
            failed[0].failed -= 1
            self._args[event.task_id] = failed[1]
            return
        self._retried[key] = event
        start = self.starts.pop(key, None)
        args = start.args if start is not None else self._waiting.get(event.task_id)
        if args is not None or event.task_id not in self._args:
            self._args[event.task_id] = args
        if start is not None:
            start.tally.running -= 1
            self._give_up(key, start, event)

    def _completed(self, event: TaskCompleted) -> None:
        tally = self.names.of(event.task)
        tally.completed += 1
        if event.duration_s is not None:
            tally.took(event, event.duration_s)
            self.slowest.add((-event.duration_s, event.task, event.task_id, event.attempt), event)
        self._end(event)

    def _cancel(self, event: TaskCancelled) -> None:
        self.names.of(event.task).cancelled += 1
        self._on_trouble(event)
        self._end(event)

    def _fail(self, event: TaskFailed) -> None:
        key = attempt_key(event)
        self._on_trouble(event)
        if key not in self._retried:
            tally = self.names.of(event.task)
            tally.failed += 1
            self._failed[key] = tally, event.args if len(self._failed) < ARGS_KEPT else None
        elif self._retried.pop(key) is None:
            self.attempts += 1  # it was given up before, and is known with its retry
            self._on_end(EndedAttempt(event, None, moment(event.timestamp), event.args))
            return
        self._end(event)

    def _end(self, event: TaskEnded) -> None:
        key, at = attempt_key(event), moment(event.timestamp)
        self.attempts += 1
        self.ended_level.add(at, 1)
        began = None
        if event.duration_s is not None and at is not None:
            began = at - nanoseconds(event.duration_s)
        start = self.starts.pop(key, None)
        done = EndedAttempt(event, began, at, event.args)
        if start is None:
            self._ends[key] = done if began is None else None
            self._show_life(event.task_id, at if began is None else began)
        else:
            start.tally.running -= 1
            if began is None:
                done.began = start.at
        if event.attempt > 1:
            self._args[event.task_id] = event.args
        self._held(done.began, at)
        if self.last.would_keep(event.timestamp):
            self.last.add((event.timestamp, event.writer, event.seq, key), done)
        self._on_end(done)

    def _held(self, began: int | None, until: int | None) -> None:
        if began is not None and until is not None:
            self.running_level.add(began, 1)
            self.running_level.add(max(began, until), -1)


NAMES = 2_000
"""Number of names that are counted separately; all others count together."""
LISTED = 200
OTHERS = "(other names)"
LONG = 400
RECENT = 100
"""Number of the latest completed tasks of each name that are kept with their times."""


class NameTally:
    """Tasks of one name."""

    __slots__ = (
        "cancelled",
        "completed",
        "durations",
        "failed",
        "name",
        "recent",
        "retried",
        "running",
        "submitted",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.submitted = self.completed = self.failed = self.cancelled = self.retried = self.running = 0
        self.durations = DurationSketch()
        self.recent: Newest[tuple[str, float]] = Newest(RECENT)
        """When a task completed, and how long it took."""

    def took(self, event: TaskCompleted, duration_s: float) -> None:
        """A task completed after this duration."""
        self.durations.add(duration_s)
        at = event.timestamp
        if self.recent.would_keep(at):
            self.recent.add((at, event.writer, event.seq, event.task_id), (at, duration_s))

    def known(self, until: int) -> KnownDurations | None:
        """What is known about the duration of the next one; null where too few have completed."""
        ends = [
            ((until - at) / SECOND, took)
            for when, took in self.recent.items()
            if (at := moment(when)) is not None
        ]
        whole = self.durations.count <= len(ends)
        return from_durations(ends, whole=whole, spread=() if whole else self.durations.sample())

    def known_roughly(self) -> KnownDurations | None:
        """What their mean says, for a name that is one of very many."""
        mean = self.durations.mean
        return None if mean is None or self.durations.count < ENOUGH else of_mean(mean)

    @property
    def size(self) -> int:
        """Number of tasks, as the summary counts them."""
        return max(self.submitted, self.ended + self.running)

    @property
    def ended(self) -> int:
        """Tasks that are over."""
        return self.completed + self.failed + self.cancelled

    def result(self) -> LiveTaskName:
        """The counts, and how long it takes."""
        spread = self.durations
        known = spread.count > 0
        return LiveTaskName(
            name=cut(self.name, NAME),
            submitted=self.submitted,
            completed=self.completed,
            failed=self.failed,
            running=self.running,
            mean_s=spread.mean,
            max_s=spread.max if known else None,
            cancelled=self.cancelled,
            retried=self.retried,
            p95_s=spread.quantile(0.95),
            total_s=spread.total if known else None,
        )


class TaskNames:
    """All names."""

    def __init__(self) -> None:
        self.tallies: dict[str, NameTally] = {}
        self._others = NameTally(OTHERS)

    def of(self, name: str) -> NameTally:
        """The tally of a name; a very long one is known by its beginning and a digest."""
        found = self.tallies.get(name)
        if found is not None:
            return found
        if len(name) > LONG:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
            return self.of(f"{name[: LONG - 20]} {digest}")
        if len(self.tallies) >= NAMES:
            return self._others
        found = self.tallies[name] = NameTally(name)
        return found

    def __len__(self) -> int:
        return len(self.tallies)

    @property
    def has_others(self) -> bool:
        """Whether there are more names than are counted separately."""
        return self._others.size > 0

    def all(self) -> list[NameTally]:
        """Every tally, that of all further names last."""
        return [*self.tallies.values(), *([self._others] if self.has_others else [])]

    def results(self) -> list[LiveTaskName]:
        """The largest first."""
        most = sorted(self.all(), key=lambda one: (one is self._others, -one.size, one.name))[:LISTED]
        return [one.result() for one in most]

    def busiest(self, limit: int) -> list[str]:
        """The names that took most of the time, in order of the alphabet, so that colours stay what they
        are.
        """
        most = sorted(self.tallies.values(), key=lambda one: (-one.durations.total, -one.size, one.name))[
            :limit
        ]
        return sorted(one.name for one in most)


EXACT = 10_000
"""Up to this many values are kept exactly; beyond, as counts in bins that grow by 1 %."""
SAMPLE = 100
_BLOCK = 256
_STEP = math.log(1.01)
_NOTHING = -(1 << 30)
"""The bin of values that have no logarithm."""


class ExactSum:
    """A sum that is rounded once, however many values there are: what `math.fsum` of all of them gives."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[float] = []

    def add(self, value: float) -> None:
        """Put a value in."""
        parts = self._parts
        parts.append(value)
        if len(parts) >= _BLOCK:
            self._parts = _folded(parts)

    def value(self) -> float:
        """The sum; infinite where it leaves the range of floats."""
        return exact_sum(self._parts)


def _folded(parts: list[float]) -> list[float]:
    """Few numbers with the same exact sum: the rounded sum, what rounding left, and so on until nothing is
    left.
    """
    found: list[float] = []
    while True:
        rest = exact_sum([*parts, *(-part for part in found)])
        if not math.isfinite(rest):
            return [math.inf]
        if rest == 0.0:
            return found
        found.append(rest)


class DurationSketch:
    """Durations of things of one name, in seconds."""

    __slots__ = ("_bins", "_max", "_min", "_settled", "_sum", "_values", "count")

    def __init__(self) -> None:
        self.count = 0
        self._values: list[float] = []
        self._bins: dict[int, int] = {}
        self._sum = ExactSum()
        self._min, self._max = math.inf, -math.inf
        self._settled: tuple[int, float] = (0, 0.0)

    def add(self, value: float) -> None:
        """Put a value in."""
        self.count += 1
        if not self._bins:
            self._values.append(value)
            if self.count <= EXACT:
                return
            for each in self._values:
                self._count(each)
            self._values = []
        else:
            self._count(value)

    def _count(self, value: float) -> None:
        where = math.floor(math.log(value) / _STEP) if value > 0 else _NOTHING
        self._bins[where] = self._bins.get(where, 0) + 1
        self._min, self._max = min(self._min, value), max(self._max, value)
        self._sum.add(value)

    @property
    def total(self) -> float:
        """Their sum."""
        if self._settled[0] != self.count:
            self._values.sort()  # cheap where little is new
            self._settled = self.count, self._sum.value() if self._bins else exact_sum(self._values)
        return self._settled[1]

    @property
    def min(self) -> float:
        """The shortest; there must be one."""
        return self._min if self._bins else min(self._values)

    @property
    def max(self) -> float:
        """The longest; there must be one."""
        return self._max if self._bins else max(self._values)

    @property
    def mean(self) -> float | None:
        """Null where there is none."""
        return mean_of(self.count, self.total, self.min, self.max) if self.count else None

    def quantile(self, q: float) -> float | None:
        """Interpolated as everywhere; within 1 % where there are more than `EXACT` values, null where there
        is none.
        """
        if not self.count:
            return None
        if not self._bins:
            self._values.sort()  # cheap where little is new
            return quantile(self._values, q)
        place, passed = place_of(q, self.count).below + 1, 0
        for where in sorted(self._bins):
            passed += self._bins[where]
            if passed >= place:
                return self._within(where)
        return self.max

    def _within(self, where: int) -> float:
        value = 0.0 if where == _NOTHING else math.exp((where + 0.5) * _STEP)
        return min(max(value, self.min), self.max)

    def sample(self) -> list[float]:
        """All values where they are few, else `SAMPLE` evenly spaced quantiles."""
        if not self._bins:
            self._values.sort()
            if self.count <= SAMPLE:
                return self._values
            return [self._values[(2 * rank + 1) * self.count // (2 * SAMPLE)] for rank in range(SAMPLE)]
        wanted = [(2 * rank + 1) * self.count // (2 * SAMPLE) for rank in range(SAMPLE)]
        found: list[float] = []
        passed = 0
        for where in sorted(self._bins):
            passed += self._bins[where]
            while len(found) < SAMPLE and wanted[len(found)] < passed:
                found.append(self._within(where))
        return found

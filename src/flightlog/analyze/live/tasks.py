"""Where the tasks of a run are now, by name and in all, from events that come in any order.

One tally serves the live views and the metrics for Prometheus. It counts attempts as the relation `attempts`
of a finished run has them (`store.tables.views`).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from flightlog.analyze.limits import PredictLimits
from flightlog.analyze.live.levels import Level
from flightlog.analyze.live.results import NAME, LiveTaskName
from flightlog.analyze.predict.eta import KnownDurations, from_durations, of_mean
from flightlog.analyze.tallies import Least, Newest
from flightlog.core.stats import mean_of, place_of, quantile
from flightlog.core.text import cut
from flightlog.core.time import SECOND, moment, nanoseconds
from flightlog.events import (
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskEvent,
    TaskFailed,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.events.base import Json
from flightlog.store.read.lines import AnyEvent

SLOWEST = 20
BARS = 500
"""Number of the latest attempts that are kept one by one."""
DONE = 10_000
"""Number of attempts whose lines are known to be all there, so that one more is one too many."""
ARGS_KEPT = 50_000
"""Number of waiting tasks whose arguments are kept until they start."""
State = Literal["pending", "running", "completed", "failed", "cancelled"]
_ENDS: dict[type[TaskEvent], State] = {
    TaskCompleted: "completed",
    TaskFailed: "failed",
    TaskCancelled: "cancelled",
}
_OPEN = frozenset({"pending", "running"})
_FINAL = frozenset({"completed", "cancelled"})


class RecentKeys:
    """The keys that were added last: `limit` of them at least, and twice as many at most."""

    __slots__ = ("_limit", "_newer", "_older")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._newer, self._older = set[str](), set[str]()

    def add(self, key: str) -> None:
        """Remember a key."""
        self._newer.add(key)
        if len(self._newer) > self._limit:
            self._newer, self._older = set(), self._newer

    def __contains__(self, key: str) -> bool:
        return key in self._newer or key in self._older


class Attempt(Struct, gc=False):
    """What the lines of one attempt say; of several of one kind the latest counts."""

    tally: NameTally
    submitted: bool = False
    waits: bool = False
    """Whether its task was never seen to start."""
    state: State = "pending"
    retried: bool = False
    started: bool = False
    ended: bool = False
    args: Json | None = None
    start: TaskStarted | None = None
    end: TaskEnded | None = None
    retry: TaskRetried | None = None
    since: int | None = None
    until: int | None = None
    """When it started, and when it ended or was retried without an end of its own."""
    ran: tuple[int, int] | None = None
    """When it began and ended, once it is over and both are known."""
    whole: bool = True
    """Whether its lines are kept: as long as it is among the latest."""

    @property
    def outcome(self) -> str:
        """Its state; `retried` where it failed and was retried."""
        return "retried" if self.retried and self.state == "failed" else self.state

    @property
    def last(self) -> TaskEnded | TaskStarted | TaskRetried:
        """The line that says most of it; there must be one beside that of its submission."""
        found = self.end or self.start or self.retry
        assert found is not None
        return found

    @property
    def order(self) -> tuple[str, str, int]:
        """Orders attempts of one time."""
        return self.last.task, self.last.task_id, self.last.attempt

    @property
    def worker(self) -> str | None:
        """Where it is or was executed."""
        at_end = self.end.worker if self.end is not None else None
        return at_end if at_end is not None or self.start is None else self.start.worker

    @property
    def queue_s(self) -> float | None:
        """How long it waited."""
        at_end = self.end.queue_s if self.end is not None else None
        return at_end if at_end is not None or self.start is None else self.start.queue_s

    @property
    def at(self) -> str:
        """When it ended, or was retried without an end of its own; else when it began."""
        return (self.end or self.retry or self.last).timestamp

    def interval(self) -> tuple[int, int] | None:
        """When it began and ended, as `attempt_intervals` has it; None where one of them is unknown."""
        if self.until is None:
            return None
        took = self.end.duration_s if self.end is not None else None
        began = self.since if took is None else self.until - nanoseconds(took)
        return None if began is None else (began, max(began, self.until))

    def compact(self) -> None:
        """Keep what lines that are still to come need to be counted."""
        self.args = _args(self) if self.retried else None
        self.start = self.end = self.retry = None
        self.whole = False


class LiveTasks:
    """Puts the lines of each attempt together, and counts where attempts are.

    Memory: tasks that wait or run, attempts that failed, were retried or lack a line that others have, a few
    numbers a name, and the latest attempts. A line that says again what another said is not counted twice
    while its attempt is one of these.
    """

    def __init__(
        self,
        on_start: Callable[[TaskStarted, int | None], None],
        on_end: Callable[[Attempt], None],
        on_trouble: Callable[[TaskFailed | TaskRetried | TaskCancelled], None],
    ) -> None:
        """Who else is to know: of starts with their moments, of ends, and of what did not go well."""
        self.names = TaskNames()
        self.ended = 0
        """Attempts that are over."""
        self.first: int | None = None
        """When the first attempt began, as far as is known."""
        self.running_level, self.waiting_level, self.ended_level = Level(), Level(), Level()
        self.slowest: Least[TaskEnded] = Least(SLOWEST)
        self.last: Newest[Attempt] = Newest(BARS, Attempt.compact)
        self.running: dict[str, Attempt] = {}
        self._on_start, self._on_end, self._on_trouble = on_start, on_end, on_trouble
        self._attempts: dict[str, Attempt] = {}
        self._done = RecentKeys(DONE)
        """Attempts all of whose lines were read."""
        self.waiting = 0
        """Tasks that were submitted and never seen to start or end."""
        self._several: set[str] = set()
        """Tasks of which a later attempt than the first was seen."""
        self._takes: dict[type[AnyEvent], Callable[[str, Attempt, Any, int | None], None]] = {
            TaskSubmitted: self._submitted,
            TaskStarted: self._started,
            TaskRetried: self._retried,
            **dict.fromkeys(_ENDS, self._ended),
        }

    def running_since(self) -> list[int]:
        """When the attempts that run began, as far as is known."""
        return [since for one in self.running.values() if (since := one.since) is not None]

    def find(self, task_id: str, attempt: int) -> Attempt | None:
        """An attempt, while it is kept."""
        return self._attempts.get(_key(task_id, attempt))

    def args_of(self, one: Attempt) -> Json | None:
        """The arguments of an attempt, as far as they are known: those of the first say them, too."""
        own = _args(one)
        first = self._attempts.get(one.last.task_id) if own is None else None
        return own if first is None else _args(first)

    def add(self, event: AnyEvent) -> None:
        """Take one event; other kinds are ignored."""
        take = self._takes.get(type(event))
        if take is None or not isinstance(event, TaskEvent):
            return
        key = event.task_id if event.attempt == 1 else _key(event.task_id, event.attempt)
        one = self._attempts.get(key)
        if one is None:
            if key in self._done:
                return
            one = self._attempts[key] = Attempt(self.names.of(event.task))
        take(key, one, event, moment(event.timestamp))
        if one.state in _OPEN:
            return
        if one.started and one.outcome in _FINAL and (one.submitted or event.attempt > 1):
            del self._attempts[key]
            self._done.add(key)
        elif not one.whole:
            one.compact()

    def _submitted(self, _: str, one: Attempt, event: TaskSubmitted, at: int | None) -> None:
        if one.submitted:
            return
        one.submitted = True
        one.tally.counts["submitted"] += 1
        self.waiting_level.add(at, 1)
        if one.state == "pending" and event.task_id not in self._several:
            one.waits = True
            self.waiting += 1
        else:
            began = one.ran[0] if one.ran is not None else one.since
            self.waiting_level.add(at if began is None else began, -1)
        if one.end is None and self.waiting < ARGS_KEPT:
            one.args = event.args

    def _started(self, key: str, one: Attempt, event: TaskStarted, at: int | None) -> None:
        if at is not None and (self.first is None or at < self.first):
            self.first = at
        self._on_start(event, at)
        one.started = True
        if one.start is None or _order(event) > _order(one.start):
            one.start, one.since = event, at
        if one.state == "pending":
            self._begin(one, event, at)
            one.state = "running"
            one.tally.counts["running"] += 1
            self.running[key] = one
        elif one.whole or one.ran is None:
            self._draw(one)

    def _retried(self, key: str, one: Attempt, event: TaskRetried, at: int | None) -> None:
        if one.retried:
            return
        self._on_trouble(event)
        one.tally.counts["retries"] += 1
        one.retry, one.retried = event, True
        if one.state in _OPEN:
            self._end(key, one, event, at, "failed")
        elif one.state == "failed":
            one.tally.counts["failed"] -= 1
            one.tally.counts["retried"] += 1

    def _ended(self, key: str, one: Attempt, event: TaskEnded, at: int | None) -> None:
        known, state = one.end, _ENDS[type(event)]
        if one.ended and (known is None or one.state == state or _order(event) < _order(known)):
            return
        if isinstance(event, TaskFailed | TaskCancelled):
            self._on_trouble(event)
        elif (took := event.duration_s) is not None and one.state != state:
            one.tally.took(event, took)
            self.slowest.add((-took, event.task, event.task_id, event.attempt), event)
        one.end, one.ended, one.args = event, True, None
        self._end(key, one, event, at, state)

    def _begin(self, one: Attempt | None, event: TaskEvent, at: int | None) -> None:
        """The first sign of life of an attempt: its task waits no more."""
        if event.attempt > 1:
            self._several.add(event.task_id)
            one = self._attempts.get(event.task_id)
        if one is not None and one.waits:
            one.waits = False
            self.waiting -= 1
            self.waiting_level.add(at, -1)

    def _end(
        self, key: str, one: Attempt, event: TaskEnded | TaskRetried, at: int | None, state: State
    ) -> None:
        before, counts = one.outcome, one.tally.counts
        one.state, one.until = state, at
        counts[one.outcome] += 1
        self._draw(one)
        if before != "pending":
            counts[before] -= 1
        if before not in _OPEN:
            return
        if before == "running":
            del self.running[key]
        else:
            self._begin(one, event, at if one.ran is None else one.ran[0])
        self.ended += 1
        self.ended_level.add(at, 1)
        self._on_end(one)
        self.last.add((event.timestamp, event.writer, event.seq, key), one)  # which may keep little of it

    def _draw(self, one: Attempt) -> None:
        """Put the time that an attempt took into the count of those that run, in place of what was known."""
        ran = one.interval()
        if ran is None or ran == one.ran:
            return
        if one.ran is not None:
            self.running_level.add(one.ran[0], -1)
            self.running_level.add(one.ran[1], 1)
        self.running_level.add(ran[0], 1)
        self.running_level.add(ran[1], -1)
        one.ran = ran


def _key(task_id: str, attempt: int) -> str:
    return task_id if attempt == 1 else f"{task_id}\0{attempt}"


def _args(one: Attempt) -> Json | None:
    return one.args if one.end is None else one.end.args


def _order(event: TaskEvent) -> tuple[str, int, str]:
    return event.timestamp, event.seq, event.writer


NAMES = 2_000
"""Number of names that are counted separately; all others count together."""
LISTED = 200
OTHERS = "(other names)"
LONG = 400
RECENT = 100
"""Number of the latest completed tasks of each name that are kept with their times."""
TASK_COUNTS = ("submitted", "completed", "failed", "cancelled", "running")
COUNTS = (*TASK_COUNTS, "retried", "retries")
"""What is counted of a name: attempts by their outcome, submissions, and attempts that were retried."""


class NameTally:
    """Tasks of one name."""

    __slots__ = ("counts", "durations", "name", "recent")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = dict.fromkeys(COUNTS, 0)
        self.durations = DurationSketch()
        self.recent: Newest[tuple[str, float]] = Newest(RECENT)
        """When a task completed, and how long it took."""

    def took(self, event: TaskEnded, duration_s: float) -> None:
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
        return None if mean is None or self.durations.count < PredictLimits.min_ended_tasks else of_mean(mean)

    @property
    def size(self) -> int:
        """Number of tasks, as the summary counts them."""
        return max(self.counts["submitted"], self.ended + self.counts["running"])

    @property
    def ended(self) -> int:
        """Tasks that are over."""
        return self.counts["completed"] + self.counts["failed"] + self.counts["cancelled"]

    def result(self) -> LiveTaskName:
        """The counts, and how long it takes."""
        spread, counts = self.durations, self.counts
        return LiveTaskName(
            name=cut(self.name, NAME),
            **{name: counts[name] for name in TASK_COUNTS},
            retried=counts["retries"],
            mean_s=spread.mean,
            max_s=spread.max if spread.count else None,
            p95_s=spread.quantile(0.95),
            total_s=spread.total if spread.count else None,
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

    def totals(self) -> dict[str, int]:
        """The counts of all names together."""
        return {count: sum(one.counts[count] for one in self.all()) for count in COUNTS}

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
_STEP = math.log(1.01)
_NOTHING = -(1 << 30)
"""The bin of values that have no logarithm."""


class DurationSketch:
    """Durations of things of one name, in seconds."""

    __slots__ = ("_bins", "_ns", "_values", "count", "max", "min")

    def __init__(self) -> None:
        self.count = self._ns = 0
        self.min, self.max = math.inf, -math.inf
        self._values: list[float] = []
        self._bins: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """Put a value in."""
        self.count += 1
        self._ns += nanoseconds(value)
        self.min, self.max = min(self.min, value), max(self.max, value)
        if self.count <= EXACT:
            self._values.append(value)
            return
        if self._values:
            self._bins, self._values = Counter(map(_bin, self._values)), []
        self._bins[_bin(value)] += 1

    @property
    def total(self) -> float:
        """Their sum, the same in any order."""
        return self._ns / SECOND

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
        if self._values:
            self._values.sort()  # cheap where little is new
            return quantile(self._values, q)
        return self._ranked([place_of(q, self.count).below])[0]

    def sample(self) -> list[float]:
        """All values where they are few, else `SAMPLE` evenly spaced quantiles."""
        places = [(2 * rank + 1) * self.count // (2 * SAMPLE) for rank in range(SAMPLE)]
        if not self._values:
            return self._ranked(places)
        self._values.sort()
        return self._values if self.count <= SAMPLE else [self._values[place] for place in places]

    def _ranked(self, places: list[int]) -> list[float]:
        """The values at these places, counted from 0 and in order, from the bins."""
        found: list[float] = []
        passed = 0
        for where in sorted(self._bins):
            passed += self._bins[where]
            while len(found) < len(places) and places[len(found)] < passed:
                value = 0.0 if where == _NOTHING else math.exp((where + 0.5) * _STEP)
                found.append(min(max(value, self.min), self.max))
        return found


def _bin(value: float) -> int:
    return math.floor(math.log(value) / _STEP) if value > 0 else _NOTHING

"""Where the tasks of a run are now, from events that come in any order and never twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from flightlog.analyze.attempts import attempt_key
from flightlog.analyze.least import Least
from flightlog.analyze.live.levels import Level
from flightlog.analyze.live.newest import Newest
from flightlog.analyze.live.task_names import NameTally, TaskNames
from flightlog.analyze.moments import moment, nanoseconds
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
from flightlog.store.lines import AnyEvent

SLOWEST = 20
BARS = 500
"""So many of the last attempts are known one by one."""
ARGS_KEPT = 50_000
"""Of so many waiting tasks the arguments are remembered until they start."""


class Attempt(Struct):
    """One that began and has no end."""

    event: TaskStarted
    at: int | None
    tally: NameTally
    args: Json | None


class Done(Struct, gc=False):
    """An attempt that is over: the event of its end, or that of its start where it was given up and tried
    again.
    """

    event: TaskEnded | TaskStarted
    began: int | None
    at: int | None
    args: Json | None
    retry: TaskRetried | None = None


class LiveTasks:
    """Pairs submissions with starts, starts with ends, and failures with retries, as the summary does.

    Remembers what has no partner yet: tasks that wait or run, and failures that nobody retried; beside them a
    few numbers a name, and the last attempts.
    """

    def __init__(
        self,
        on_start: Callable[[TaskStarted, int | None], None],
        on_end: Callable[[Done], None],
        on_trouble: Callable[[TaskFailed | TaskRetried | TaskCancelled], None],
    ) -> None:
        """Who else is to know: of starts with their moments, of ends, and of what did not go well."""
        self.names = TaskNames()
        self.attempts = 0
        self.first: int | None = None
        """When the first attempt began, as far as is known."""
        self.running_level, self.waiting_level, self.ended_level = Level(), Level(), Level()
        self.slowest: Least[TaskCompleted] = Least(SLOWEST)
        self.last: Newest[Done] = Newest(BARS)
        self.retries: Newest[str] = Newest(4 * BARS)
        """Attempts that were tried again, by key."""
        self.starts: dict[str, Attempt] = {}
        self._on_start, self._on_end, self._on_trouble = on_start, on_end, on_trouble
        self._waiting: dict[str, Json | None] = {}
        self._begun: dict[str, int | None] = {}
        self._ends: dict[str, Done | None] = {}
        """Ends without a start; what is known of the attempt where it is not known how long it took."""
        self._failed: dict[str, tuple[NameTally, Json | None]] = {}
        self._retried: dict[str, TaskRetried | None] = {}
        """Retries of attempts whose end was not seen; null where the start was."""
        self._args: dict[str, Json | None] = {}
        """Of tasks that were tried again."""
        self._takes: dict[type[AnyEvent], Callable[[Any], None]] = {
            TaskSubmitted: self._submitted,
            TaskStarted: self._started,
            TaskRetried: self._retry,
            TaskCompleted: self._completed,
            TaskFailed: self._fail,
            TaskCancelled: self._cancel,
        }

    def add(self, event: AnyEvent) -> None:
        """Take one event; kinds of no concern are passed over."""
        take = self._takes.get(type(event))
        if take is not None:
            take(event)

    @property
    def waiting(self) -> int:
        """Tasks that were submitted and never seen to start or end."""
        return len(self._waiting)

    def args_of(self, one: Attempt | Done) -> Json | None:
        """The arguments of an attempt, as far as they are known."""
        return one.args if one.args is not None else self._args.get(one.event.task_id)

    def running(self) -> list[Attempt]:
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
        start = Attempt(event, at, self.names.of(event.task), args)
        retry = self._retried.get(key)
        if retry is not None:
            self._give_up(key, start, retry)
        else:
            start.tally.running += 1
            self.starts[key] = start

    def _give_up(self, key: str, start: Attempt, retry: TaskRetried) -> None:
        """The attempt is over, though it has no end of its own, and perhaps never will."""
        at = moment(retry.timestamp)
        self._retried[key] = None
        self._held(start.at, at)
        done = Done(start.event, start.at, at, start.args, retry)
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
            self._on_end(Done(event, None, moment(event.timestamp), event.args))
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
        done = Done(event, began, at, event.args)
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

"""Attempts of tasks, put together from events that come in any order and from several writers."""

from __future__ import annotations

from typing import NamedTuple

from flightlog.core.intervals import Intervals
from flightlog.core.time import moment, nanoseconds
from flightlog.events import TaskEnded, TaskEvent, TaskFailed, TaskRetried, TaskStarted, TaskSubmitted


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
        """The name of the task of each failed attempt that was not tried again."""
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


def attempt_key(event: TaskEvent) -> str:
    """What starts and ends of one attempt share."""
    return event.task_id if event.attempt == 1 else f"{event.task_id}\0{event.attempt}"

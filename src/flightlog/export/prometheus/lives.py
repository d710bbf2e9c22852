"""Where the tasks of a run are now, from events that come in any order and never twice."""

from __future__ import annotations

from flightlog.analyze.report.attempts import attempt_key
from flightlog.events import TaskCancelled, TaskCompleted, TaskEnded, TaskEvent, TaskFailed, TaskStarted
from flightlog.events.tasks import TaskRetried, TaskSubmitted


class TaskLives:
    """Counts events, and pairs starts with ends and failures with retries.

    Remembers what has no partner yet: tasks that wait or run, and failures that nobody retried. Counts in
    `events` only grow; `states` is the summary's way to count: a failure counts once it is final.
    """

    def __init__(self) -> None:
        self.events = dict.fromkeys(
            ("submitted", "started", "completed", "failed", "retried", "cancelled"), 0
        )
        self._waiting: set[str] = set()
        self._begun: set[str] = set()
        self._running: set[str] = set()
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._retried: set[str] = set()

    def add(self, event: TaskEvent) -> None:
        """Take one event; one of another kind changes nothing."""
        if isinstance(event, TaskEnded):
            self._end(event)
        elif isinstance(event, TaskStarted):
            self.events["started"] += 1
            self._begin(event, self._ended, self._running)
        elif isinstance(event, TaskSubmitted):
            self.events["submitted"] += 1
            _settle(event.task_id, self._begun, self._waiting)
        elif isinstance(event, TaskRetried):
            self.events["retried"] += 1
            key = attempt_key(event)
            self._running.discard(key)
            _settle(key, self._failed, self._retried)

    def states(self) -> dict[str, int]:
        """How many tasks are where."""
        return {
            "pending": len(self._waiting),
            "running": len(self._running),
            "completed": self.events["completed"],
            "failed": len(self._failed),
            "cancelled": self.events["cancelled"],
        }

    def _end(self, event: TaskEnded) -> None:
        if isinstance(event, TaskFailed):
            self.events["failed"] += 1
            _settle(attempt_key(event), self._retried, self._failed)
        elif isinstance(event, TaskCompleted):
            self.events["completed"] += 1
        elif isinstance(event, TaskCancelled):
            self.events["cancelled"] += 1
        self._begin(event, self._running, self._ended)

    def _begin(self, event: TaskEvent, partners: set[str], alone: set[str]) -> None:
        """A start or an end: pair it with the other of the two; the first of them shows that the task waits
        no more.
        """
        key = attempt_key(event)
        if key in partners:
            partners.remove(key)
            return
        if key not in self._retried or alone is self._ended:
            alone.add(key)
        _settle(event.task_id, self._waiting, self._begun)


def _settle(key: str, partners: set[str], alone: set[str]) -> None:
    if key in partners:
        partners.remove(key)
    else:
        alone.add(key)

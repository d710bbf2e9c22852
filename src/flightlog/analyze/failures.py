"""What went wrong, grouped by cause: a thousand tasks with one fault are one fault."""

from __future__ import annotations

from msgspec import Struct

from flightlog.analyze.least import Least
from flightlog.events import Event, Failure, TaskFailed
from flightlog.events.base import Json

LISTED = 100
"""How many groups a summary lists; `groups` is of all."""
TRACEBACK_CHARS = 8000
"""How much of a traceback a summary keeps, from its end."""


class FailureExample(Struct, frozen=True, kw_only=True):
    """The earliest failure of a group."""

    timestamp: str
    task: str | None
    task_id: str | None
    args: Json | None
    worker: str | None
    exit_code: int | None
    signal: str | None
    traceback: str | None
    output_tail: str | None


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Failures with one cause."""

    fingerprint: str | None
    scopes: list[str]
    error_type: str | None
    message: str | None
    """Of the earliest."""
    count: int
    example: FailureExample


class FailureSummary(Struct, frozen=True, kw_only=True):
    """All failures, the most frequent cause first.

    A failed task stands in `failures` and, without its traceback, in `tasks`. Each counts once, wherever it
    was found: a group has as many task failures as the longer of its two accounts. An error that ended a task
    and then the run, too, is one failure.
    """

    count: int
    groups: int
    by_cause: list[FailureGroup]


class FailureTally:
    """Takes the events of the streams `failures` and `tasks`, in any order."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], _Group] = {}

    def add(self, event: Event) -> None:
        """Take one event; kinds of no concern are passed over."""
        if isinstance(event, Failure):
            key = cause_of(event.fingerprint, event.error_type, event.message)
            group = self._groups.setdefault(key, _Group())
            group.scopes.add(event.scope)
            if event.task_id is not None:
                group.in_tasks += 1
            elif event.scope == "run":
                group.in_run += 1
            else:
                group.elsewhere += 1
            group.failures.add(
                (event.timestamp, event.writer, event.seq, event.task_id or "", event.message or ""), event
            )
        elif isinstance(event, TaskFailed):
            key = cause_of(event.fingerprint, event.error_type, event.error_message)
            group = self._groups.setdefault(key, _Group())
            group.scopes.add("task")
            group.failed_tasks.add((event.timestamp, event.writer, event.seq, event.task_id), event)

    def summary(self) -> FailureSummary:
        """The result."""
        groups = [group.summary(key) for key, group in self._groups.items()]
        groups.sort(
            key=lambda group: (
                -group.count,
                group.example.timestamp,
                group.fingerprint or "",
                group.error_type or "",
                group.message or "",
            )
        )
        return FailureSummary(
            count=sum(group.count for group in groups), groups=len(groups), by_cause=groups[:LISTED]
        )


class _Group:
    def __init__(self) -> None:
        self.scopes: set[str] = set()
        self.in_tasks = self.in_run = self.elsewhere = 0
        self.failures: Least[Failure] = Least(1)
        self.failed_tasks: Least[TaskFailed] = Least(1)

    def summary(self, key: tuple[str, ...]) -> FailureGroup:
        failure = next(iter(self.failures.items()), None)
        task = next(iter(self.failed_tasks.items()), None)
        count = max(self.in_tasks, self.failed_tasks.count) + self.elsewhere or self.in_run
        fingerprint = key[0] if len(key) == 1 else None
        scopes = sorted(self.scopes)
        if failure is None:
            assert task is not None
            return FailureGroup(
                fingerprint=fingerprint,
                scopes=scopes,
                error_type=task.error_type,
                message=task.error_message,
                count=count,
                example=FailureExample(
                    timestamp=task.timestamp,
                    task=task.task,
                    task_id=task.task_id,
                    args=task.args,
                    worker=task.worker,
                    exit_code=task.exit_code,
                    signal=None,
                    traceback=None,
                    output_tail=None,
                ),
            )
        same = task if task is not None and task.task_id == failure.task_id else None
        return FailureGroup(
            fingerprint=fingerprint,
            scopes=scopes,
            error_type=failure.error_type,
            message=failure.message,
            count=count,
            example=FailureExample(
                timestamp=failure.timestamp,
                task=failure.task,
                task_id=failure.task_id,
                args=same.args if same else None,
                worker=failure.worker or (same.worker if same else None),
                exit_code=failure.exit_code,
                signal=failure.signal,
                traceback=_end(failure.traceback),
                output_tail=_end(failure.output_tail),
            ),
        )


def cause_of(fingerprint: str | None, error_type: str | None, message: str | None) -> tuple[str, ...]:
    """What failures with one cause share: the fingerprint, or else the kind of error and its first line."""
    if fingerprint:
        return (fingerprint,)
    return (error_type or "", (message or "").partition("\n")[0])


def _end(text: str | None) -> str | None:
    if text is None or len(text) <= TRACEBACK_CHARS:
        return text
    return "…" + text[-TRACEBACK_CHARS:]

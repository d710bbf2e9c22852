"""Failures as they come: how many, and the last ones with their tracebacks."""

from __future__ import annotations

from collections.abc import Mapping

from flightlog.analyze.attempts import attempt_key
from flightlog.analyze.failures import cause_of
from flightlog.analyze.live.newest import Newest
from flightlog.analyze.live.results import Failed
from flightlog.analyze.live.words import LINE, NAME, TRACEBACK, args_text, cut, cut_end
from flightlog.events import Failure, TaskFailed

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

"""Failures by cause, with when, where, of what and at which attempt."""

from __future__ import annotations

from pathlib import Path

from builders.runs import at, make_run
from builders.task_events import failed, started, submitted

from flightlog.analyze.report.failures import FailureCase
from flightlog.analyze.report.report import report_on
from flightlog.events import Event, Failure, TaskRetried, TaskStarted
from flightlog.store.run import Run


def failure(task_id: str | None, when: float, attempt: int | None, **more: object) -> Event:
    fields = {
        "scope": "task",
        "error_type": "OSError",
        "message": "gone",
        "traceback": "Traceback",
        "fingerprint": "f1",
        "worker": "w1",
    }
    return Failure(timestamp=at(when), task="sim", task_id=task_id, attempt=attempt, **{**fields, **more})  # type: ignore[arg-type]


def test_one_cause_tells_when_where_of_what_and_at_which_attempt(tmp_path: Path) -> None:
    events: list[Event] = [
        submitted("a", seed=1),
        started("a", 0.0),
        failure("a", 1, 1),
        TaskRetried(timestamp=at(1), task="sim", task_id="a", reason="OSError: gone"),
        TaskStarted(timestamp=at(2), task="sim", task_id="a", attempt=2, worker="w2", queue_s=None),
        failure("a", 3, 2, worker="w2"),
        failed("a", 3, 1.0, "w2", attempt=2, error_type="OSError", error_message="gone", fingerprint="f1"),
        submitted("b", seed=2),
        failed("b", 4, 1.0, error_type="ValueError", error_message="bad\nseed"),
    ]
    report = report_on(Run(make_run(tmp_path, events)))
    assert report.details is not None
    gone, bad = report.details.failures
    assert (gone.fingerprint, gone.count, gone.first, gone.last) == ("f1", 2, at(1), at(3))
    assert (gone.tasks, gone.workers, gone.attempts) == ({"sim": 2}, {"w1": 1, "w2": 1}, {"1": 1, "2": 1})
    assert gone.cases == [
        FailureCase(timestamp=at(1), task="sim", task_id="a", args={"seed": 1}, worker="w1", attempt=1),
        FailureCase(timestamp=at(3), task="sim", task_id="a", args={"seed": 1}, worker="w2", attempt=2),
    ]
    assert (bad.fingerprint, bad.error_type, bad.count, bad.tasks) == (None, "ValueError", 1, {"sim": 1})
    assert sum(cause.count for cause in report.details.failures) == report.failures.count

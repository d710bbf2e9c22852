"""Events of things that go wrong, shortly."""

from __future__ import annotations

from builders.runs import at
from builders.task_events import failed

from flightlog.analyze.diagnosis.results import Cause, RunDiagnosis
from flightlog.events import Event, Failure, WorkerLaunched, WorkerLost


def failure(
    task_id: str, when: float, error_type: str = "ValueError", message: str = "bad seed", **more
) -> Event:
    fields = {
        "scope": "task",
        "traceback": None,
        "fingerprint": None,
        "task": "sim",
        "attempt": 1,
        "worker": "w1",
    }
    return Failure(
        timestamp=at(when), task_id=task_id, error_type=error_type, message=message, **{**fields, **more}
    )


def lost_task(task_id: str, when: float, worker: str, reason: str, **more) -> list[Event]:
    ended = {"error_type": "WorkerLost", "error_message": reason, **more}
    return [
        failed(task_id, when, 1.0, worker, **ended),
        failure(task_id, when, "WorkerLost", reason, worker=worker, task=more.get("task", "sim")),
    ]


def launched(worker: str, host: str, pid: int | None = None, **more) -> Event:
    return WorkerLaunched(timestamp=at(0), worker=worker, host=host, pid=pid, **more)


def lost(worker: str, when: float, host: str, reason: str, **more) -> Event:
    return WorkerLost(timestamp=at(when), worker=worker, host=host, reason=reason, **{"pid": None, **more})


def only(found: RunDiagnosis) -> Cause:
    [cause] = found.causes
    return cause

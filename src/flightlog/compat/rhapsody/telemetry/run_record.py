"""The run of a session: its tasks are recorded as they happen, so that they survive a crash."""

from __future__ import annotations

import dataclasses
import hashlib
import socket
from typing import Any, Literal

from flightlog.compat.rhapsody.backends.base import MEASURED, RunPlace
from flightlog.compat.rhapsody.telemetry.dispatch import ENDS
from flightlog.compat.rhapsody.telemetry.events import BaseEvent, ResourceUpdate, duration_of, time_of
from flightlog.events import (
    Failure,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.record.recording import NoopRun, Recording, record
from flightlog.record.run import LiveRun
from flightlog.record.values import clean, text_of

_OF_SESSIONS = frozenset({"SessionStarted", "SessionEnded"})
_OF_TASKS = ENDS | {"TaskCreated", "TaskSubmitted", "TaskQueued", "TaskStarted"}
_BASE = frozenset(one.name for one in dataclasses.fields(BaseEvent))


@dataclasses.dataclass
class _OpenTask:
    """A task that has not ended."""

    ids: dict[str, Any]
    submitted_at: float
    args: dict[str, Any] = dataclasses.field(default_factory=dict)
    queue_s: float | None = None


class RunRecord:
    """Records the events of a session into a run of its own. Thread-safe; no method raises.

    `run` is None where recording is switched off.
    """

    def __init__(self, session_id: str) -> None:
        self._recording: Recording | None = record(session_id, provider="rhapsody")
        run = self._recording.__enter__()
        self.run: LiveRun | None = None if isinstance(run, NoopRun) else run
        self._tasks: dict[str, _OpenTask] = {}

    def note(
        self, event: BaseEvent, trace_id: int, span_id: int, parent_id: int | None, facts: dict[str, Any]
    ) -> None:
        """Record one event; `facts` has what the backend measured and what the task itself holds."""
        run = self.run
        if run is None:
            return
        try:
            kind = event.event_type
            when = run.recorder.clock.iso(int(time_of(event) * 1e9) - run.recorder.clock.anchor_ns)
            if isinstance(event, ResourceUpdate):
                self._note_sample(run, event, when)
                return
            if event.task_id is None or kind not in _OF_TASKS:
                if kind not in _OF_SESSIONS:
                    self._note_custom(run, event)
                return
            known = self._known(event, trace_id, span_id, parent_id)
            if kind == "TaskSubmitted":
                known.submitted_at = time_of(event)
                if facts.get("args"):
                    known.args, _ = clean(facts["args"])
                run.emit(TaskSubmitted(timestamp=when, args=known.args, **known.ids))
            elif kind == "TaskQueued":
                run.emit(TaskQueued(timestamp=when, **known.ids))
            elif kind == "TaskStarted":
                known.queue_s = max(0.0, time_of(event) - known.submitted_at)
                if not facts.get("recorded"):
                    run.emit(
                        TaskStarted(
                            timestamp=when, worker=facts.get("worker"), queue_s=known.queue_s, **known.ids
                        )
                    )
            elif kind in ENDS:
                self._note_end(run, event, when, known, facts)
        except Exception as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            run.recorder.count("events_failed")
            run.recorder.trouble("rhapsody", f"an event of the session was not recorded: {text_of(error)}")

    def place_of(self, task_id: str) -> RunPlace | None:
        """Where in the run a task is recorded by its worker."""
        known = self._tasks.get(task_id)
        if known is None or self.run is None:
            return None
        parent = known.ids["parent_id"] or self.run.info.span_id
        return RunPlace(self.run, known.ids["task"], known.ids["span_id"], parent, known.submitted_at)

    def end(self, error: BaseException | None = None) -> None:
        """End the run, failed if there was an error; may be called again."""
        recording, self._recording = self._recording, None
        if recording is not None:
            kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
            recording.__exit__(kind, error, trace)

    def _known(self, event: BaseEvent, trace_id: int, span_id: int, parent_id: int | None) -> _OpenTask:
        assert event.task_id is not None
        known = self._tasks.get(event.task_id)
        if known is None:
            ids = {
                "task": str(event.attributes.get("executable") or "task"),
                "task_id": event.task_id,
                "component": event.backend or None,
                "trace_id": f"{trace_id:032x}",
                "span_id": f"{span_id:016x}",
                "parent_id": None if parent_id is None else f"{parent_id:016x}",
            }
            known = self._tasks.setdefault(event.task_id, _OpenTask(ids, time_of(event)))
        if event.backend:
            known.ids["component"] = event.backend
        return known

    def _note_end(self, run: LiveRun, event: Any, when: str, known: _OpenTask, facts: dict[str, Any]) -> None:
        self._tasks.pop(event.task_id, None)
        ended: dict[str, Any] = {
            "timestamp": when,
            "args": known.args,
            "duration_s": duration_of(event),
            "queue_s": known.queue_s,
            "worker": None,
            **known.ids,
            **{name: facts[name] for name in MEASURED if name in facts},
        }
        if event.event_type == "TaskCompleted":
            run.emit(TaskCompleted(**ended))
        elif event.event_type == "TaskCanceled":
            run.emit(TaskCancelled(reason=event.attributes.get("reason"), **ended))
        else:
            run.emit(TaskFailed(**ended, **self._failure(run, event, known, facts)))

    def _failure(self, run: LiveRun, event: Any, known: _OpenTask, facts: dict[str, Any]) -> dict[str, Any]:
        about: dict[str, Any] = {"task": known.ids["task"], "task_id": event.task_id, "attempt": 1}
        about |= {"worker": facts.get("worker"), "span_id": known.ids["span_id"]}
        error, code = facts.get("exception"), facts.get("exit_code")
        if isinstance(error, BaseException):
            text = run.note_failure(error, "task", **about)
            return {
                "error_type": text.error_type,
                "error_message": text.message,
                "fingerprint": text.fingerprint,
            }
        message = f"{known.ids['task']} ended with exit code {code}" if code else event.error_type
        failed: dict[str, Any] = {
            "error_type": None if code else event.error_type,
            "fingerprint": hashlib.sha256(f"{known.ids['task']} {code} {message}".encode()).hexdigest()[:16],
            "exit_code": code,
        }
        said = facts.get("stderr")
        tail = clean({"said": said[-2000:]})[0]["said"] if isinstance(said, str) and said else None
        scope: Literal["command", "task"] = "command" if code else "task"
        run.emit(Failure(scope=scope, message=message, traceback=None, output_tail=tail, **failed, **about))
        return {**failed, "error_message": message}

    def _note_custom(self, run: LiveRun, event: BaseEvent) -> None:
        own = {one.name: getattr(event, one.name) for one in dataclasses.fields(event)}
        fields = {name: value for name, value in own.items() if name not in _BASE}
        if event.task_id is not None:
            fields["task_id"] = event.task_id
        said = {text_of(name): value for name, value in event.attributes.items()}
        run.event(event.event_type, **{**said, **fields})

    def _note_sample(self, run: LiveRun, event: ResourceUpdate, when: str) -> None:
        """Record a sample of another machine or a worker; this machine is sampled by the run itself."""
        worker = event.attributes.get("worker")
        if worker is None and event.node_id in {None, socket.gethostname()}:
            return
        scope: Literal["gpu", "worker", "node"] = "node" if worker is None else "worker"
        run.emit(
            ResourceSample(
                timestamp=when,
                scope="gpu" if event.gpu_id is not None else scope,
                host=event.node_id,
                worker=None if worker is None else text_of(worker),
                cpu_percent=event.cpu_percent,
                gpu_index=event.gpu_id,
                gpu_percent=event.gpu_percent,
            )
        )

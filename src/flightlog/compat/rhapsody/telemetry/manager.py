"""The telemetry of one session: its events become metrics, spans, a checkpoint file and a run, in which tasks
are recorded as they happen, so that they survive a crash.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import hashlib
import json
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

from flightlog import events as recorded
from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.backends.base import MEASURED, RunPlace
from flightlog.compat.rhapsody.telemetry import dispatch, events
from flightlog.compat.rhapsody.telemetry.dispatch import ENDS, QueuedEvent, TaskRecord
from flightlog.compat.rhapsody.telemetry.events import BaseEvent, ResourceUpdate, time_of
from flightlog.core.errors import MissingExtra
from flightlog.record.recording import NoopRun, Recording
from flightlog.record.run import LiveRun
from flightlog.record.values import clean, text_of
from flightlog.store.liveness import this_host

if TYPE_CHECKING:
    from flightlog.compat.rhapsody.telemetry.adapters import TelemetryAdapter
    from flightlog.compat.rhapsody.telemetry.otel import Providers

log = logging.getLogger(__name__)


class TelemetryManager:
    """Takes a session's events from any thread.

    Every event is in the run, in the counts and in the spans when `emit` returns, so that whoever reads
    these, on any thread, sees it; in the checkpoint file it is soon after. Samples of this machine are left
    out of the run, which takes its own. Metrics and spans are OpenTelemetry's, and need the extra `otel`. A
    forked process records into the run only.
    """

    def __init__(
        self,
        session_id: str,
        checkpoint_interval: float | None = None,
        checkpoint_path: str | None = None,
        span_processors: list[Any] | None = None,
        metric_readers: list[Any] | None = None,
        resource: Any | None = None,
    ) -> None:
        self._session_id = session_id
        self._checkpoint_interval, self._checkpoint_path = checkpoint_interval, checkpoint_path
        extra = {"span_processors": list(span_processors or []), "metric_readers": list(metric_readers or [])}
        self._otel_options: dict[str, Any] = {**extra, "resource": resource}
        self._running = False
        self._start_time = self._duration = 0.0
        self._queue: SimpleQueue[QueuedEvent | None] = SimpleQueue()
        self._counts = dispatch.SessionCounts()
        self._tasks: dict[str, TaskRecord] = {}
        self._ended_tasks: OrderedDict[str, TaskRecord] = OrderedDict()
        self._backends: dict[str, Any] = {}
        self._adapters: list[TelemetryAdapter] = []
        self._subscribers = dispatch.Subscribers()
        self._enrichers: list[Callable[[BaseEvent], dict[str, Any]]] = []
        self._otel: Providers | None = None
        self._record: RunRecord | None = None
        self._error: BaseException | None = None
        self._dispatch: dispatch.Dispatch | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._interval = 1.0
        self._lock = threading.RLock()
        self._warned = False

    @property
    def session_id(self) -> str:
        """The session's id, which all events have."""
        return self._session_id

    @property
    def run_path(self) -> Path | None:
        """The run directory; None before the start, and where recording is switched off."""
        record = self._record
        return record.run.path if record is not None and record.run is not None else None

    @property
    def _session_span(self) -> Any:
        """The session's span, which RHAPSODY's documentation uses; None before the start."""
        return None if self._otel is None else self._otel.session

    async def start(self) -> None:
        """Start. Raises `MissingExtra` without OpenTelemetry, and what an adapter raises; then nothing has
        started.
        """
        try:
            from flightlog.compat.rhapsody.telemetry.otel import Providers
        except ImportError as error:
            raise MissingExtra(
                "telemetry needs OpenTelemetry's SDK: pip install 'flightlog[otel]'"
            ) from error
        sent = ["traces"] if self._otel_options["span_processors"] else []
        self._record = RunRecord(self._session_id, self._tasks, self._interval, sent)
        self._pid, self._start_time = os.getpid(), time.time()
        self._subscribers.loop = asyncio.get_running_loop()
        begun: list[TelemetryAdapter] = []
        try:
            self._dispatch = dispatch.Dispatch(
                self._queue, self._subscribers, self._open_file(), self._checkpoint_interval
            )
            about = self._session_id, self._start_time, self._record.run
            into = self._counts, self._dispatch.span_ended, self._lock
            self._otel = Providers(*about, *into, self._enrichers, **self._otel_options)
            self._running = True
            run = {"recorder": "flightlog", "run": self.run_path and self.run_path.name}
            first = events.make_event(
                events.SessionStarted, session_id=self._session_id, backend="rhapsody", attributes=run
            )
            self._subscribers.begin(first)
            self.emit(first)
            for adapter in self._adapters:
                adapter.start()
                begun.append(adapter)
        except BaseException as error:
            self._running = False
            for adapter in begun:
                adapter.stop()
            self._record.end(error)
            raise
        for backend in self._backends.values():
            self._give_place(backend)
        self._thread = threading.Thread(
            target=self._dispatch.run, args=(self._otel, self._tasks), name="telemetry", daemon=True
        )
        self._thread.start()
        atexit.register(self._finish_at_exit)
        self._otel.enter()

    async def stop(self) -> None:
        """Stop: open tasks are reported as canceled, and all events processed. May be called again.

        Later events are ignored.
        """
        if not self._running:
            return
        if self._pid != os.getpid():  # the thread that works events off is the parent's
            self._running = False
            return
        for adapter in self._adapters:
            try:
                adapter.stop()
            except Exception:
                log.exception("%s could not be stopped", type(adapter).__name__)
        self._cancel_unfinished()
        self._duration = time.time() - self._start_time
        self._emit_own(events.SessionEnded, duration_seconds=self._duration)
        await dispatch.on_own_thread(self._end_dispatch().join)
        atexit.unregister(self._finish_at_exit)
        await self._subscribers.finish()
        assert self._record is not None
        assert self._otel is not None
        self._otel.leave()
        self._record.end(self._error)

    def emit(self, event: BaseEvent) -> None:
        """Add an event, from any thread; never waits, never raises. Ignored before the start and after the
        end.
        """
        self._emit(event, {})

    def subscribe(self, callback: Callable[[BaseEvent], Any]) -> None:
        """Call a function with every event, in order, on a thread of its own; a coroutine function on the
        event loop.

        Late subscribers get the session's start all the same. What a callback raises is logged.
        """
        self._subscribers.add(callback)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write what this thread emits in the block into the run at its end, at a fraction of the cost."""
        with nullcontext() if self._record is None else self._record.together():
            yield

    def register_adapter(self, adapter: TelemetryAdapter) -> None:
        """Start and stop an adapter with this manager."""
        adapter._manager = self
        self._adapters.append(adapter)

    def attach_backend(
        self, backend: Any, *, session_id: str, backend_name: str, interval: float = 5.0
    ) -> None:
        """Use what a backend measures, and sample its machines where there is an adapter; before or after
        `start`. The run samples this machine at the interval that was given last before it.
        """
        from flightlog.compat.rhapsody.backends import execution
        from flightlog.compat.rhapsody.telemetry import adapters

        self._backends[backend_name] = backend
        self._interval = interval
        about: dict[str, Any] = {"session_id": session_id, "backend_name": backend_name, "interval": interval}
        adapter: TelemetryAdapter | None = None
        if isinstance(backend, execution.ConcurrentExecutionBackend):
            adapter = adapters.ConcurrentTelemetryAdapter(**about)
        elif isinstance(backend, execution.DaskExecutionBackend) and backend._client is not None:
            adapter = adapters.DaskTelemetryAdapter(backend._client, **about)
        elif isinstance(backend, execution.DragonExecutionBackend):
            adapter = adapters.DragonTelemetryAdapter(**about)
        if self._running:
            self._give_place(backend)
        if adapter is not None:
            self.register_adapter(adapter)
            if self._running:
                adapter.start()

    def register_span_enricher(self, func: Callable[[BaseEvent], dict[str, Any]]) -> None:
        """Add what this function returns for a task's first event to the attributes of its span."""
        self._enrichers.append(func)

    def annotate_current_span(self, event: BaseEvent) -> None:
        """Add an event to the current span, or to the session's."""
        if self._otel is not None:
            self._otel.annotate(event)

    @contextmanager
    def span_scope(self, name: str, attributes: Mapping[str, Any] | None = None) -> Iterator[None]:
        """A span around the block; tasks created in it are its children. Nothing before the start."""
        with nullcontext() if self._otel is None else self._otel.scope(name, attributes or {}):
            yield

    def read_metrics(self) -> Any:
        """The metrics now, as OpenTelemetry's `MetricsData`; None before the start."""
        return None if self._otel is None else self._otel.metrics()

    def read_traces(self) -> tuple[Any, ...]:
        """The spans that have ended, as OpenTelemetry's `ReadableSpan`, the latest 100,000."""
        return () if self._otel is None else self._otel.spans()

    def export_as_otlp(self, path: str | None = None) -> str:
        """The ended spans as OTLP JSON; also written to a file, where a path is given."""
        from flightlog.compat.rhapsody.telemetry.otel import spans_document

        resource = {} if self._otel is None else dict(self._otel.resource.attributes)
        resource.setdefault("session_id", self._session_id)
        text = json.dumps(spans_document(self.read_traces(), resource))
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, "utf-8")
        return text

    def summary(self) -> dict[str, Any]:
        """Counts and durations of tasks, and the latest samples of nodes."""
        counts = self._counts
        mean_s = counts.total_s / max(1, counts.timed)
        seconds = {"total": counts.total_s, "mean": mean_s, "min": counts.least_s, "max": counts.most_s}
        durations = {f"{name}_seconds": round(value, 6) for name, value in seconds.items()}
        return {
            "session_id": self._session_id,
            "duration_seconds": self.session_duration(),
            "tasks": self.task_count(),
            "duration": durations if counts.timed else {},
            "resources": counts.nodes(),
        }

    def task_count(self) -> dict[str, int]:
        """How many tasks were submitted, completed, failed and canceled, and how many are running."""
        kinds = ("submitted", "completed", "failed", "canceled", "running")
        return {kind: self._counts.count(kind) for kind in kinds}

    def task_spans(self) -> list[dict[str, Any]]:
        """One dict per task that has ended; `duration_seconds` is execution, without waiting."""
        ended = () if self._otel is None else self._otel.ended.copy()
        return [dispatch.task_span(one) for one in ended if isinstance(one, TaskRecord)]

    def session_duration(self) -> float:
        """Seconds from the start to the end, or to now; 0.0 before the start."""
        lasts = self._start_time and not self._duration
        return round(time.time() - self._start_time if lasts else self._duration, 6)

    def _on_task_state_change(self, task: dict[str, Any], state: str) -> None:
        """A task of the session has entered this state, or is CREATED, SUBMITTED or QUEUED there."""
        if not self._running:
            return
        uid, backend = task["uid"], self._backends.get(task.get("backend") or "")
        facts = getattr(backend, "measured", {}).get(uid) or {}
        if state == "SUBMITTED":
            facts = {**facts, "args": events.arguments(task)}
        elif state == "FAILED":
            facts = {**{name: task.get(name) for name in ("exception", "exit_code", "stderr")}, **facts}
        known = self._tasks.get(uid)
        began = None if known is None else known.started_at
        event = events.task_event(self._session_id, task, state, facts, began)
        if event is not None:
            self._emit(event, facts)

    def _emit_own(self, kind: type[BaseEvent], backend: str = "rhapsody", **fields: Any) -> None:
        self.emit(events.make_event(kind, session_id=self._session_id, backend=backend, **fields))

    def _emit(self, event: BaseEvent, facts: dict[str, Any]) -> None:
        if not self._running or self._otel is None or self._record is None:
            return
        task = None if event.task_id is None else self._task_of(event, event.task_id, self._otel)
        self._record.note(event, task, facts)
        if self._pid != os.getpid() or self._dispatch is None:
            return
        try:
            with self._lock:
                self._counts.add(event, task)
                if task is not None:
                    self._otel.add(event, task)
        except Exception:
            # Whatever it is, it may be so every time.
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            log.log(level, "an event of type %s was not taken in", event.event_type, exc_info=True)
        if self._dispatch.wanted:
            self._queue.put((event, task))

    def _task_of(self, event: BaseEvent, task_id: str, otel: Providers) -> TaskRecord:
        """The record of an event's task, which is new at its first event, and once more when it is created
        again.
        """
        kind, task = event.event_type, self._tasks.get(task_id)
        if task is None and kind != "TaskCreated":
            task = self._ended_tasks.get(task_id)
        if task is None:
            task = self._tasks.setdefault(task_id, otel.new_task(event))
        if event.backend:
            task.backend = event.backend
        if kind == "TaskCreated":
            task.created = True
        elif kind == "TaskStarted":
            task.started_at = event.event_time
        elif kind in ENDS:
            self._tasks.pop(task_id, None)
            self._ended_tasks[task_id] = task
            if len(self._ended_tasks) > CompatLimits.max_remembered_tasks:
                self._ended_tasks.popitem(last=False)
        return task

    def _cancel_unfinished(self) -> None:
        """Report open tasks as canceled."""
        now = time.time()
        for task_id, task in list(self._tasks.items()):
            began = task.started_at
            if began is None and not task.created:
                continue
            unseen = {"incomplete_lifecycle": True} if began is None else {}
            why = {"reason": "telemetry ended before the task did", **unseen}
            about = {"task_id": task_id, "duration_seconds": max(0.0, now - (began or now))}
            self._emit_own(events.TaskCanceled, task.backend, attributes=why, **about)

    def _end_dispatch(self) -> threading.Thread:
        """Take no more events; the thread ends when all are processed."""
        self._running = False
        self._queue.put(None)
        assert self._thread is not None
        return self._thread

    def _finish_at_exit(self) -> None:
        """Process all events of a program that exits without `stop`."""
        if self._running and self._pid == os.getpid():
            self._end_dispatch().join(CompatLimits.subscriber_timeout_s)

    def _give_place(self, backend: Any) -> None:
        if hasattr(backend, "place_of") and self._record is not None:
            backend.place_of, backend.together = self._record.place_of, self.together

    def _open_file(self) -> dispatch.CheckpointFile | None:
        if self._checkpoint_path is None:
            return None
        try:
            return dispatch.CheckpointFile(self._checkpoint_path, self._session_id, self._start_time)
        except OSError as error:
            log.warning("there will be no checkpoint file in %s: %s", self._checkpoint_path, error)
            return None


class TelemetryReader:
    """Reads the metrics and spans of a manager."""

    def __init__(self, manager: TelemetryManager) -> None:
        self._manager = manager

    def read_metrics(self) -> Any:
        """The metrics now, as OpenTelemetry's `MetricsData`."""
        return self._manager.read_metrics()

    def read_traces(self, session_id: str | None = None, task_id: str | None = None) -> tuple[Any, ...]:
        """The ended spans, of all or of one session or task."""
        wanted = {"session_id": session_id, "task_id": task_id}
        return tuple(
            span
            for span in self._manager.read_traces()
            if all(value is None or span.attributes.get(name) == value for name, value in wanted.items())
        )


class TelemetrySubscriber:
    """Subscribes to the events of a manager."""

    def __init__(self, manager: TelemetryManager) -> None:
        self._manager = manager

    def subscribe(self, callback: Callable[[BaseEvent], Any]) -> None:
        """As `TelemetryManager.subscribe`."""
        self._manager.subscribe(callback)


_OF_SESSIONS = frozenset({"SessionStarted", "SessionEnded"})
_OF_TASKS = ENDS | {"TaskCreated", "TaskSubmitted", "TaskQueued", "TaskStarted"}
_BASE = frozenset(one.name for one in dataclasses.fields(BaseEvent))


def _common(event: BaseEvent, task: TaskRecord, timestamp: str) -> dict[str, Any]:
    """The fields that all events of a task have in a run."""
    return {
        "timestamp": timestamp,
        "task": task.name,
        "task_id": event.task_id,
        "component": task.backend or None,
        **task.ids,
    }


class RunRecord:
    """Records the events of a session into a run of its own. Thread-safe; no method raises.

    `run` is None where recording is switched off; `tasks` are those that have not ended. The machine is
    sampled every `interval_s` seconds. `sent` are the signals that the program sends to OpenTelemetry's
    endpoint itself, and that the run does not send once more.
    """

    def __init__(
        self, session_id: str, tasks: Mapping[str, TaskRecord], interval_s: float, sent: list[str]
    ) -> None:
        options = {"sample_interval_s": interval_s, "samplers": None, "target": None, "provider": "rhapsody"}
        self._recording: Recording | None = Recording(
            session_id, None, {}, {**options, "sent_otherwise": sent}
        )
        run = self._recording.__enter__()
        self.run: LiveRun | None = None if isinstance(run, NoopRun) else run
        self._tasks = tasks
        self._together: tuple[int, list[recorded.Event]] | None = None

    def note(self, event: BaseEvent, task: TaskRecord | None, facts: dict[str, Any]) -> None:
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
            if task is None or kind not in _OF_TASKS:
                if kind not in _OF_SESSIONS:
                    self._note_custom(run, event)
                return
            common = _common(event, task, when)
            if kind == "TaskSubmitted":
                task.submitted_at = time_of(event)
                if facts.get("args"):
                    task.args, _ = clean(facts["args"])
                self._write(run, recorded.TaskSubmitted(args=task.args, **common))
            elif kind == "TaskQueued":
                self._write(run, recorded.TaskQueued(**common))
            elif kind == "TaskStarted":
                task.queue_s = max(0.0, time_of(event) - task.submitted_at)
                if not facts.get("recorded"):
                    where: dict[str, Any] = {"worker": facts.get("worker"), "queue_s": task.queue_s}
                    self._write(run, recorded.TaskStarted(**where, **common))
            elif kind in ENDS:
                self._note_end(run, event, task, common, facts)
        except Exception as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            run.recorder.count("events_failed")
            run.recorder.trouble("rhapsody", f"an event of the session was not recorded: {text_of(error)}")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write the events of tasks that this thread notes in the block at its end."""
        if self.run is None or self._together is not None:
            yield
            return
        batch: list[recorded.Event] = []
        self._together = threading.get_ident(), batch
        try:
            yield
        finally:
            self._together = None
            if batch:
                self.run.emit(*batch)

    def _write(self, run: LiveRun, event: recorded.Event) -> None:
        together = self._together
        if together is not None and together[0] == threading.get_ident():
            together[1].append(event)
        else:
            run.emit(event)

    def place_of(self, task_id: str) -> RunPlace | None:
        """Where in the run a task is recorded by its worker."""
        task = self._tasks.get(task_id)
        if task is None or self.run is None:
            return None
        ids = task.ids
        return RunPlace(self.run, task.name, ids["span_id"], ids["parent_id"], task.submitted_at)

    def end(self, error: BaseException | None = None) -> None:
        """End the run, failed if there was an error; may be called again."""
        recording, self._recording = self._recording, None
        if recording is not None:
            kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
            recording.__exit__(kind, error, trace)

    def _note_end(
        self, run: LiveRun, event: Any, task: TaskRecord, common: dict[str, Any], facts: dict[str, Any]
    ) -> None:
        ended: dict[str, Any] = {
            "args": task.args,
            "duration_s": events.duration_of(event),
            "queue_s": task.queue_s,
            "worker": None,
            **common,
            **{name: facts[name] for name in MEASURED if name in facts},
        }
        if event.event_type == "TaskCompleted":
            self._write(run, recorded.TaskCompleted(**ended))
        elif event.event_type == "TaskCanceled":
            self._write(run, recorded.TaskCancelled(reason=event.attributes.get("reason"), **ended))
        else:
            self._write(run, recorded.TaskFailed(**ended, **self._failure(run, event, common, facts)))
        task.args = {}  # it is remembered for longer than they are needed

    def _failure(
        self, run: LiveRun, event: Any, common: dict[str, Any], facts: dict[str, Any]
    ) -> dict[str, Any]:
        about: dict[str, Any] = {name: common[name] for name in ("task", "task_id", "span_id")}
        about |= {"attempt": 1, "worker": facts.get("worker")}
        error, code = facts.get("exception"), facts.get("exit_code")
        if isinstance(error, BaseException):
            text = run.note_failure(error, "task", **about)
            said = {"error_type": text.error_type, "error_message": text.message}
            return {**said, "fingerprint": text.fingerprint}
        message = f"{about['task']} ended with exit code {code}" if code else event.error_type
        failed: dict[str, Any] = {
            "error_type": None if code else event.error_type,
            "fingerprint": hashlib.sha256(f"{about['task']} {code} {message}".encode()).hexdigest()[:16],
            "exit_code": code,
        }
        output = facts.get("stderr")
        tail = clean({"said": output[-2000:]})[0]["said"] if isinstance(output, str) and output else None
        scope: Literal["command", "task"] = "command" if code else "task"
        run.emit(
            recorded.Failure(
                scope=scope, message=message, traceback=None, output_tail=tail, **failed, **about
            )
        )
        return {**failed, "error_message": message}

    def _note_custom(self, run: LiveRun, event: BaseEvent) -> None:
        fields = {text_of(name): value for name, value in event.attributes.items()}
        own = (one.name for one in dataclasses.fields(event))
        fields |= {name: getattr(event, name) for name in own if name not in _BASE}
        if event.task_id is not None:
            fields["task_id"] = event.task_id
        run.event(event.event_type, **fields)

    def _note_sample(self, run: LiveRun, event: ResourceUpdate, when: str) -> None:
        """Record a sample of another machine or a worker; this machine is sampled by the run itself."""
        worker = event.attributes.get("worker")
        if worker is None and event.node_id in {None, this_host()}:
            return
        sample = recorded.ResourceSample(
            timestamp=when,
            scope="gpu" if event.gpu_id is not None else "node" if worker is None else "worker",
            host=event.node_id,
            worker=None if worker is None else text_of(worker),
            cpu_percent=event.cpu_percent,
            gpu_index=event.gpu_id,
            gpu_percent=event.gpu_percent,
        )
        run.emit(sample)

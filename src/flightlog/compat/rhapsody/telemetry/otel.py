"""A session in OpenTelemetry's terms: its meters, a span for each task, and the JSON form of its spans.

Needs OpenTelemetry's SDK, so it is imported when telemetry starts.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from opentelemetry import context, trace
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.telemetry.dispatch import COUNTED, SessionCounts, TaskRecord
from flightlog.compat.rhapsody.telemetry.events import BaseEvent, duration_of, random_id, time_of
from flightlog.export.otlp.model import OtlpEvent, OtlpSpan, json_form
from flightlog.export.otlp.model import Resource as OtlpResource
from flightlog.record.run import LiveRun

log = logging.getLogger(__name__)


SESSION = "flightlog-rhapsody-session"
"""Key of the session's span id in a context."""
_STATUS = {"TaskCompleted": "completed", "TaskFailed": "failed", "TaskCanceled": "canceled"}


class Providers:
    """OpenTelemetry's meters and tracers of one session, and the session's span.

    Where there is a run, the session's span has its ids, so that both are one trace. `ended` are spans that
    have ended, and tasks, whose spans are made when somebody reads them; at once where there are processors,
    which are called on the thread that emits. `write` is called with every other ended span, on the thread
    that ended it. Thread-safe with `lock`, which who adds events holds.
    """

    def __init__(
        self,
        session_id: str,
        started_at: float,
        run: LiveRun | None,
        counts: SessionCounts,
        write: Callable[[Any], None],
        lock: AbstractContextManager[Any],
        enrichers: list[Callable[[BaseEvent], dict[str, Any]]],
        span_processors: Sequence[Any] = (),
        metric_readers: Sequence[Any] = (),
        resource: Any | None = None,
    ) -> None:
        self._run, self._counts, self._write, self._lock = run, counts, write, lock
        self._live, self._warned = bool(span_processors), False
        self.ended: deque[TaskRecord | ReadableSpan] = deque(maxlen=CompatLimits.max_readable_spans)
        self.resource = resource or Resource.create({"service.name": "rhapsody", "session_id": session_id})
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider(metric_readers=[self._reader, *metric_readers], resource=self.resource)
        instrument(self._meters.get_meter("rhapsody"), counts)
        self._given = PresetIds()
        self._tracers = TracerProvider(resource=self.resource, id_generator=self._given)
        for processor in span_processors:
            self._tracers.add_span_processor(processor)
        self._tracer = self._tracers.get_tracer("rhapsody")
        run_ids = None if run is None else (int(run.info.trace_id, 16), int(run.info.span_id, 16))
        if run_ids is not None:
            self._given.give(run_ids[1], run_ids[0])
        what = {"session_id": session_id, "backend": "rhapsody"}
        self.session: Any = self._tracer.start_span(
            "session", context=context.Context(), attributes=what, start_time=nanoseconds(started_at)
        )
        self._ids = self.session.get_span_context()
        if not self._ids.is_valid and run_ids is not None:  # OpenTelemetry is switched off; the run is not
            self._ids = trace.SpanContext(*run_ids, is_remote=False)
        self._enrichers = enrichers
        self._last_metrics: Any = None
        self._before: Any = None

    def enter(self) -> None:
        """Make the session's span the current one, for others that create spans."""
        self._before = context.get_current()
        self._attach(self.session)

    def leave(self) -> None:
        """Restore the span that was current before, where the session's is current."""
        if trace.get_current_span() is self.session:
            context.attach(self._before)

    def new_task(self, event: BaseEvent) -> TaskRecord:
        """The record of a task at its first event: its span is inside the session's current one."""
        parent = current_span_of(self._ids) or self._ids
        name = str(event.attributes.get("executable") or "task")
        return TaskRecord(name, event.backend, parent.trace_id, random_id(64), parent, time_of(event))

    def ids(self, task: TaskRecord | None) -> tuple[int, int]:
        """Trace id and span id of a task's events; None stands for the session."""
        whose = self._ids if task is None else task
        return whose.trace_id, whose.span_id

    def metrics(self) -> Any:
        """All metrics, now or at the end."""
        return self._last_metrics or self._reader.get_metrics_data()

    @contextmanager
    def scope(self, name: str, attributes: Mapping[str, Any]) -> Iterator[None]:
        """A span around the block, also in the run; its parent is the session's current span."""
        inside = None if current_span_of(self._ids) else trace.set_span_in_context(self.session)
        with ExitStack() as ends:
            if self._run is not None:
                recorded = ends.enter_context(self._run.span(name))
                recorded.tags.update(attributes)
                self._given.give(int(recorded.span_id, 16))
            span = self._tracer.start_span(name, context=inside, attributes=dict(attributes))
            ends.callback(self._end_own, span)
            ends.callback(context.detach, self._attach(span))
            yield

    def _attach(self, span: Any) -> Any:
        """Make a span of this session the current one; returns the token to detach it."""
        inside = trace.set_span_in_context(span)
        return context.attach(context.set_value(SESSION, self._ids.span_id, inside))

    def annotate(self, event: BaseEvent) -> None:
        """Add an event to the current span, or to the session's."""
        here: Any = trace.get_current_span()
        span = here if here.get_span_context().is_valid else self.session
        span.add_event(event.event_type, {name: str(value) for name, value in event.attributes.items()})

    def end(self, now: float, open_tasks: Iterable[TaskRecord]) -> None:
        """End the session's span, and those of tasks without an end."""
        for task in open_tasks:
            if task.attributes is not None:
                task.attributes["incomplete_lifecycle"] = True
                self._close_task(task, nanoseconds(now))
                if (span := self.span_of(task)) is not None:
                    self._write(span)
        self._end_own(self.session, nanoseconds(now))

    def _end_own(self, span: Any, end_ns: int | None = None) -> None:
        recording = span.is_recording()
        try:
            span.end(end_ns)
        finally:
            if recording:
                self._keep(span)
                self._write(span)

    def shut_down(self) -> None:
        """Let processors and readers finish."""
        self._last_metrics = self.metrics()
        self._meters.shutdown()
        self._tracers.shutdown()

    def add(self, event: BaseEvent, task: TaskRecord) -> None:
        """Process one event of a task: its span, whose ids were known before, begins or ends."""
        kind, at_ns = event.event_type, nanoseconds(time_of(event))
        if kind in _STATUS:
            self._end_task(event, task, at_ns)
        elif kind in {"TaskCreated", "TaskStarted"} and task.attributes is None:
            self._start_task(event, task, at_ns, enrich=True)
        elif kind in {"TaskQueued", "TaskStarted"} and task.attributes is not None:
            task.moments.append((kind, at_ns))

    def _start_task(self, event: BaseEvent, task: TaskRecord, start_ns: int, *, enrich: bool) -> None:
        whose = {"session_id": event.session_id, "backend": event.backend or "", "task_id": event.task_id}
        task.attributes, task.start_ns = {**whose, **_what_runs(event)}, start_ns
        for enricher in self._enrichers if enrich else ():
            try:
                task.attributes |= enricher(event)
            except Exception:
                log.debug("a span enricher failed", exc_info=True)
        if self._live:
            task.span = self._start_span(task)

    def _end_task(self, event: Any, task: TaskRecord, end_ns: int) -> None:
        if task.end_ns is not None:
            return
        duration_s = duration_of(event)
        if task.attributes is None:
            self._start_task(event, task, end_ns - nanoseconds(duration_s or 0.0), enrich=False)
        assert task.attributes is not None
        status = _STATUS[event.event_type]
        task.attributes |= {"status": status, "duration_seconds": duration_s or 0.0, **_what_runs(event)}
        if event.attributes.get("incomplete_lifecycle"):
            task.attributes["incomplete_lifecycle"] = True
        if status == "failed":
            task.attributes["error_type"] = event.attributes.get("error_type", event.error_type)
        self._close_task(task, end_ns)

    def _close_task(self, task: TaskRecord, end_ns: int) -> None:
        task.end_ns = end_ns
        self._keep(task)
        if self._live:
            self.span_of(task)

    def _start_span(self, task: TaskRecord) -> Any:
        self._given.give(task.span_id)
        inside = trace.set_span_in_context(trace.NonRecordingSpan(task.parent))
        return self._tracer.start_span(
            "task", context=inside, attributes=task.attributes, start_time=task.start_ns
        )

    def _end_span(self, span: Any, task: TaskRecord) -> None:
        attributes = task.attributes or {}
        for name, at_ns in task.moments:
            span.add_event(name, {"task_id": attributes.get("task_id")}, at_ns)
        span.set_attributes(attributes)
        if attributes.get("status") == "failed":
            span.set_status(trace.StatusCode.ERROR, attributes["error_type"])
        elif attributes.get("status") == "completed":
            span.set_status(trace.StatusCode.OK)
        span.end(task.end_ns)

    def span_of(self, task: TaskRecord, *, keep: bool = True) -> Any:
        """The span of a task that has ended, which is kept or made again; None where OpenTelemetry is
        switched off.
        """
        with self._lock:
            span = self._start_span(task) if task.span is None else task.span
            ended = task.span_ended
            if keep or self._live:
                task.span, task.span_ended = span, True
            if not ended:
                self._end_span(span, task)
        return span if hasattr(span, "attributes") else None

    def spans(self) -> tuple[ReadableSpan, ...]:
        """The latest ended spans, in order."""
        found = (self.span_of(one) if isinstance(one, TaskRecord) else one for one in self.ended.copy())
        return tuple(span for span in found if span is not None)

    def _keep(self, ended: TaskRecord | ReadableSpan) -> None:
        """Keep what has ended to be read, and the latest ones where they are many."""
        if len(self.ended) == CompatLimits.max_readable_spans and not self._warned:
            self._warned = True
            log.warning(
                "more than %d spans: read_traces() gives the latest ones, the file has all",
                CompatLimits.max_readable_spans,
            )
        self.ended.append(ended)


class PresetIds(IdGenerator):
    """Generates the ids that were set for this thread, or else random ones."""

    def __init__(self) -> None:
        self._next = threading.local()

    def give(self, span_id: int | None, trace_id: int | None = None) -> None:
        """Set the ids of this thread's next span."""
        self._next.span_id, self._next.trace_id = span_id, trace_id

    def generate_span_id(self) -> int:
        """An id for a span."""
        given, self._next.span_id = getattr(self._next, "span_id", None), None
        return given or random_id(64)

    def generate_trace_id(self) -> int:
        """An id for a trace."""
        given, self._next.trace_id = getattr(self._next, "trace_id", None), None
        return given or random_id(128)


def instrument(meter: Any, counts: SessionCounts) -> None:
    """Create the session's instruments, which read the counts. No label grows with the number of tasks.

    None has a unit: Prometheus would append it to the name, which dashboards know without it.
    """

    def ask(what: str) -> Callable[[Any], Iterable[Any]]:
        def observe(_options: Any) -> list[Any]:
            counts.record_durations()  # those of the histogram are collected after all these
            return [Observation(value, labels) for value, labels in counts.observed(what)]

        return observe

    for what in COUNTED.values():
        meter.create_observable_counter(f"tasks_{what}", [ask(what)], description=f"Tasks {what}")
    now = "Tasks that run now"
    meter.create_observable_up_down_counter("tasks_running", [ask("running")], description=now)
    execution = "Execution of a task, without its waiting"
    counts.record = meter.create_histogram("task_duration_seconds", description=execution).record
    for name in ("cpu", "memory", "gpu"):
        asked, what = [ask(f"{name}_percent")], f"How busy a node's {name} is, in percent"
        meter.create_observable_gauge(f"node_{name}_utilization", asked, description=what)


def current_span_of(session: Any) -> Any | None:
    """The current span, if it belongs to this session and not to another one."""
    now = context.get_current()
    here, whose = trace.get_current_span(now).get_span_context(), now.get(SESSION)
    ours = here.trace_id == session.trace_id if whose is None else whose == session.span_id
    return here if here.is_valid and ours else None


def _what_runs(event: BaseEvent) -> dict[str, Any]:
    return {name: event.attributes.get(name, "") for name in ("executable", "task_type")}


def nanoseconds(seconds: float) -> int:
    """Seconds in nanoseconds."""
    return int(seconds * 1e9)


def spans_document(spans: Iterable[Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    """Spans as OTLP JSON, as a collector takes it at `/v1/traces`."""
    about = OtlpResource(attributes=dict(resource))
    return json_form("traces", about, [_otlp_span(span) for span in spans], scope={"name": "rhapsody"})


def _otlp_span(span: Any) -> OtlpSpan:
    return OtlpSpan(
        trace_id=f"{span.context.trace_id:032x}",
        span_id=f"{span.context.span_id:016x}",
        parent_id=f"{span.parent.span_id:016x}" if span.parent else None,
        name=span.name,
        kind=span.kind.value + 1,  # the protocol counts from "unspecified", the API does not
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        attributes=dict(span.attributes or {}),
        events=tuple(
            OtlpEvent(name=event.name, time_ns=event.timestamp, attributes=dict(event.attributes or {}))
            for event in span.events
        ),
        status=span.status.status_code.name.lower(),
        message=span.status.description or "",
    )

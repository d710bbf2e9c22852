"""Spans of OpenTelemetry's, one for each task, with the times at which things happened."""

from __future__ import annotations

import logging
import random
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator

from flightlog.compat.rhapsody.telemetry.events import BaseEvent, happened, seconds_of

log = logging.getLogger(__name__)

MAX_KEPT = 100_000
"""Ended spans that can be read; older ones stand in the checkpoint file and in the run."""
MAX_ENDED = 10_000
"""Ended tasks whose late events still find their span."""
SESSION = "flightlog-rhapsody-session"
"""Where a context holds the session that it is of, by its span."""
_STATUS = {"TaskCompleted": "completed", "TaskFailed": "failed", "TaskCanceled": "canceled"}


class Ids(NamedTuple):
    """The span of a task, known before it is made."""

    span_id: int
    parent: Any


class GivenIds(IdGenerator):
    """Gives ids out that were decided on before, where there are any; for each thread its own."""

    def __init__(self) -> None:
        self._next = threading.local()

    def give(self, span_id: int | None, trace_id: int | None = None) -> None:
        """The next span of this thread has these ids."""
        self._next.span_id, self._next.trace_id = span_id, trace_id

    def generate_span_id(self) -> int:
        """An id for a span."""
        given, self._next.span_id = getattr(self._next, "span_id", None), None
        return given or new_id(64)

    def generate_trace_id(self) -> int:
        """An id for a trace."""
        given, self._next.trace_id = getattr(self._next, "trace_id", None), None
        return given or new_id(128)


class KeptSpans(SpanProcessor):
    """The spans that have ended, the latest so many; and who else wants to know of each."""

    def __init__(self, ended: Callable[[ReadableSpan], None]) -> None:
        self._spans: deque[ReadableSpan] = deque(maxlen=MAX_KEPT)
        self._ended = ended
        self._told = False

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended."""
        if len(self._spans) == MAX_KEPT and not self._told:
            self._told = True
            log.warning("more than %d spans: read_traces() gives the latest ones, the file has all", MAX_KEPT)
        self._spans.append(span)
        self._ended(span)

    def kept(self) -> tuple[ReadableSpan, ...]:
        """The spans, in the order of their ends."""
        return tuple(self._spans.copy())


class TaskSpans:
    """The spans of tasks, from what is told of them. `ids` is for any thread, all else for one."""

    def __init__(
        self,
        tracer: Any,
        given: GivenIds,
        session: Any,
        enrichers: list[Callable[[BaseEvent], dict[str, Any]]],
        active: dict[str, Any],
    ) -> None:
        self._enrichers, self._active = enrichers, active
        self._tracer, self._given, self._session = tracer, given, session
        self._ids: dict[str, Ids] = {}
        self._ended: OrderedDict[str, Ids] = OrderedDict()

    def ids(self, event: BaseEvent) -> tuple[int, int]:
        """The trace and span that an event belongs to: its task's, or the session's."""
        if event.task_id is None:
            return self._session.trace_id, self._session.span_id
        ids = self._ids.get(event.task_id)
        if ids is None and event.event_type != "TaskCreated":
            ids = self._ended.get(event.task_id)
        if ids is None:
            here = open_in(self._session)
            ids = self._ids.setdefault(event.task_id, Ids(new_id(64), here or self._session))
        return ids.parent.trace_id, ids.span_id

    def parent_id(self, task_id: str) -> int | None:
        """The span that a task is inside of; None for a task that nobody has told of."""
        ids = self._ids.get(task_id)
        return None if ids is None else ids.parent.span_id

    def add(self, event: BaseEvent) -> None:
        """Take one event in."""
        kind, task_id = event.event_type, event.task_id
        if task_id is None:
            return
        span = self._active.get(task_id)
        if kind in _STATUS:
            self._end(event, span)
        elif kind in {"TaskCreated", "TaskStarted"} and span is None:
            self._open(event, nanoseconds(happened(event)), enrich=True)
        elif kind in {"TaskQueued", "TaskStarted"} and span is not None:
            span.add_event(kind, {"task_id": task_id}, nanoseconds(happened(event)))

    def end_all(self, now: float) -> None:
        """End the spans of tasks that were never heard of again."""
        for task_id, span in list(self._active.items()):
            span.set_attribute("incomplete_lifecycle", True)
            self._forget(task_id)
            span.end(nanoseconds(now))

    def _open(self, event: BaseEvent, start_ns: int, *, enrich: bool) -> Any:
        assert event.task_id is not None
        attributes = {
            "session_id": event.session_id,
            "backend": event.backend or "",
            "task_id": event.task_id,
            "executable": event.attributes.get("executable", ""),
            "task_type": event.attributes.get("task_type", ""),
        }
        for enricher in self._enrichers if enrich else ():
            try:
                attributes.update(enricher(event))
            except Exception:
                log.debug("a span enricher failed", exc_info=True)
        self.ids(event)
        ids = self._ids.get(event.task_id) or self._ended[event.task_id]
        self._given.give(ids.span_id)
        inside = trace.set_span_in_context(trace.NonRecordingSpan(ids.parent))
        span = self._tracer.start_span("task", context=inside, attributes=attributes, start_time=start_ns)
        self._active[event.task_id] = span
        return span

    def _end(self, event: Any, span: Any) -> None:
        end_ns, duration_s = nanoseconds(happened(event)), seconds_of(event)
        if span is None:
            if event.task_id in self._ended:
                return  # it has ended before
            span = self._open(event, end_ns - nanoseconds(duration_s or 0.0), enrich=False)
        status = _STATUS[event.event_type]
        span.set_attributes(
            {
                "status": status,
                "duration_seconds": duration_s or 0.0,
                "executable": event.attributes.get("executable", ""),
                "task_type": event.attributes.get("task_type", ""),
            }
        )
        if event.attributes.get("incomplete_lifecycle"):
            span.set_attribute("incomplete_lifecycle", True)
        if status == "failed":
            error_type = event.attributes.get("error_type", event.error_type)
            span.set_attribute("error_type", error_type)
            span.set_status(trace.StatusCode.ERROR, error_type)
        elif status == "completed":
            span.set_status(trace.StatusCode.OK)
        self._forget(event.task_id)
        span.end(end_ns)

    def _forget(self, task_id: str) -> None:
        self._active.pop(task_id, None)
        ids = self._ids.pop(task_id, None)
        if ids is not None:
            self._ended[task_id] = ids
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)


def open_in(session: Any) -> Any | None:
    """The span that is open here, if it is one of this session's: another session's may be open here too."""
    now = context.get_current()
    here, whose = trace.get_current_span(now).get_span_context(), now.get(SESSION)
    ours = here.trace_id == session.trace_id if whose is None else whose == session.span_id
    return here if here.is_valid and ours else None


def nanoseconds(seconds: float) -> int:
    """Seconds in nanoseconds."""
    return int(seconds * 1e9)


def new_id(bits: int) -> int:
    """An id that is not 0."""
    return random.getrandbits(bits) or 1

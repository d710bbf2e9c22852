"""Spans of the OpenTelemetry API as spans of the current run, and the trace that a run begins in.

Nothing here imports OpenTelemetry: its spans are read as they come, and a program without it has none.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from flightlog.events import UserEvent
from flightlog.record.clock import monotonic_ns
from flightlog.record.context import current_run
from flightlog.record.limits import RecordLimits
from flightlog.record.recorder import Recorder
from flightlog.record.run import LiveRun
from flightlog.record.span import RootSpan, Span, current, find_parent
from flightlog.record.values import clean, text_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

log = logging.getLogger("flightlog")

NAMES_NOT_MEASURES = frozenset({"code", "id", "index", "line", "lineno", "number", "pid", "port", "version"})
"""Last words of attributes whose number is a name: `server.port` is no measurement."""


def surrounding_trace(modules: Mapping[str, Any] = sys.modules) -> tuple[str, str] | None:
    """Trace id and span id of the OpenTelemetry span that is current here; None without one. Never raises."""
    trace = modules.get("opentelemetry.trace")
    if trace is None:
        return None
    try:
        found = trace.get_current_span().get_span_context()
        return (f"{found.trace_id:032x}", f"{found.span_id:016x}") if found.is_valid else None
    except Exception:
        log.debug("the current OpenTelemetry span cannot be read", exc_info=True)
        return None


class BridgedSpan(Span):
    """A span that was made with the OpenTelemetry API, while it is open: it has that span's id.

    It is a span like any other: it stands among the open ones, and spans of ours may be inside it.
    """

    def __init__(self, name: str, sink: Recorder, parent: Span, span_id: str, start_ns: int) -> None:
        super().__init__(name, {})
        self._sink, self._parent, self.span_id, self._start = sink, parent, span_id, start_ns
        sink.open[span_id] = self

    def end(self, end_ns: int) -> bool:
        """Record it; whether it was open, and this process's to end."""
        start, sink = self._start, self._sink
        self._start = self._sink = None
        if start is None or sink is None:
            return False
        sink.finish(self, start, end_ns)
        return True


class Bridge:
    """Records spans as they start and end; thread-safe, and never raises."""

    def __init__(self) -> None:
        self._open: dict[int, BridgedSpan] = {}
        self._ended: dict[str, None] = {}

    def start(self, span: ReadableSpan) -> None:
        """A span has started: it is open in the run that is current here, if there is one."""
        run = None
        try:
            run = current_run()
            context = span.context
            if run is None or context is None:
                return
            parent = self._parent(span.parent, run)
            if parent is None:
                return
            started = _monotonic(span.start_time, run.recorder)
            bridged = BridgedSpan(span.name, run.recorder, parent, f"{context.span_id:016x}", started)
            bridged.tags = dict(span.attributes or {})
            self._open[context.span_id] = bridged
        except Exception as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            _tell(run.recorder if run else None, error)

    def end(self, span: ReadableSpan) -> None:
        """A span has ended: it is recorded with its attributes, events and status."""
        recorder = None
        try:
            context = span.context
            bridged = self._open.pop(context.span_id, None) if context else None
            if context is None or bridged is None or bridged._sink is None:
                return
            recorder = cast(Recorder, bridged._sink)
            ended = _monotonic(span.end_time, recorder)
            bridged.name = span.name
            bridged.tags, bridged.metrics = _attributes(span)
            if bridged._start is not None and ended < bridged._start:  # no span takes less than no time
                bridged.metrics["otel.end_before_start_s"] = (bridged._start - ended) / 1e9
                ended = bridged._start
            self._say_where(bridged, span, recorder)
            _take_status(bridged, span)
            self._ended[bridged.span_id] = None
            if len(self._ended) > RecordLimits.max_remembered_ended_spans:
                self._ended.pop(next(iter(self._ended)), None)
            if bridged.end(ended):
                _record_events(bridged, span, recorder)
        except Exception as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            _tell(recorder, error)

    def _parent(self, above: SpanContext | None, run: LiveRun) -> Span | None:
        """The span's own parent where the run knows it, or can; else where code is in the run."""
        recorder = run.recorder
        here = current.get()
        if here is None or here._sink is not recorder:
            here = find_parent(here)
        if here is None or above is None:
            return here
        parent_id = f"{above.span_id:016x}"
        found = recorder.open.get(parent_id)
        if found is not None:
            return found
        ours = f"{above.trace_id:032x}" == recorder.trace_id and parent_id != run.info.parent_id
        if ours or parent_id in self._ended:
            return RootSpan(recorder, recorder.trace_id, parent_id, parent=here)
        return here

    def _say_where(self, bridged: BridgedSpan, span: ReadableSpan, recorder: Recorder) -> None:
        """What tells where a span comes from, where that is not said by its ids in the run."""
        tags, scope, context = bridged.tags, span.instrumentation_scope, span.context
        if scope is not None and scope.name:
            tags.setdefault("otel.scope", scope.name)
        if span.kind.name != "INTERNAL":
            tags.setdefault("otel.kind", span.kind.name.lower())
        if context is not None and f"{context.trace_id:032x}" != recorder.trace_id:
            tags.setdefault("otel.trace_id", f"{context.trace_id:032x}")
        if span.parent is not None and f"{span.parent.span_id:016x}" != bridged.parent_id:
            tags.setdefault("otel.parent_id", f"{span.parent.span_id:016x}")
        if span.links:
            tags.setdefault(
                "otel.links",
                [
                    f"{one.context.trace_id:032x}-{one.context.span_id:016x}"
                    for one in span.links[: RecordLimits.max_links]
                ],
            )


def _monotonic(wall_ns: int | None, recorder: Recorder) -> int:
    """A moment on the recorder's clock: now, if it was read from the wall clock just now, else as it was
    given.
    """
    now, behind = monotonic_ns(), 0 if wall_ns is None else time.time_ns() - wall_ns
    if wall_ns is None or 0 <= behind < RecordLimits.same_moment_ns:
        return now - behind
    return wall_ns - recorder.clock.anchor_ns


def _attributes(span: ReadableSpan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tags and metrics: numbers are measured, unless their name says that they are names."""
    tags: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    for key, value in (span.attributes or {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        name = key.replace("_", ".").rpartition(".")[2] in NAMES_NOT_MEASURES
        (metrics if number and not name else tags)[key] = list(value) if isinstance(value, tuple) else value
    return tags, metrics


def _take_status(bridged: BridgedSpan, span: ReadableSpan) -> None:
    if span.status.status_code.name != "ERROR":
        return
    bridged.set_status("error", span.status.description)
    for event in reversed(span.events):
        if event.name == "exception":
            found = event.attributes or {}
            kind, message = found.get("exception.type"), found.get("exception.message")
            bridged.error_type = str(kind).rpartition(".")[2] if kind else None
            bridged.error_message = str(message) if message else bridged.error_message
            return


def _record_events(bridged: BridgedSpan, span: ReadableSpan, recorder: Recorder) -> None:
    for event in span.events:
        fields, marks = clean(dict(event.attributes or {}))
        recorder.emit(
            UserEvent(
                timestamp=recorder.clock.iso(event.timestamp - recorder.clock.anchor_ns),
                name=text_of(event.name),
                fields={**fields, "nonfinite": marks} if marks else fields,
                span_id=bridged.span_id,
            )
        )


def _tell(recorder: Recorder | None, error: Exception) -> None:
    if recorder is None:
        log.debug("an OpenTelemetry span was not recorded: %s", text_of(error))
        return
    recorder.count("events_failed")
    recorder.trouble("otel", f"an OpenTelemetry span could not be recorded: {text_of(error)}")

"""OpenTelemetry's providers of one session: its metrics, its spans, and the span of the session itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from flightlog.compat.rhapsody.telemetry.events import BaseEvent
from flightlog.compat.rhapsody.telemetry.instruments import Tallies, instrument
from flightlog.errors import MissingExtra
from flightlog.record.run import LiveRun


def require_opentelemetry() -> None:
    """Raise `MissingExtra` where OpenTelemetry's SDK is not installed."""
    try:
        import opentelemetry.sdk.metrics
        import opentelemetry.sdk.trace  # noqa: F401 - whether they can be had
    except ImportError as error:
        raise MissingExtra("telemetry needs OpenTelemetry's SDK: pip install 'flightlog[otel]'") from error


class Providers:
    """Metrics that ask the tallies, and spans with times of their own; needs what `require_opentelemetry`
    asks for.

    Where there is a run, the session's span has its ids, so that both tell of one trace. `span_ended` is
    called with every span that has ended, on the thread that ended it; `active` is kept as the spans of tasks
    that have not.
    """

    def __init__(
        self,
        *,
        session_id: str,
        started_at: float,
        run: LiveRun | None,
        tallies: Tallies,
        enrichers: list[Callable[[BaseEvent], dict[str, Any]]],
        active: dict[str, Any],
        span_ended: Callable[[Any], None],
        span_processors: Sequence[Any] = (),
        metric_readers: Sequence[Any] = (),
        resource: Any | None = None,
    ) -> None:
        from opentelemetry import context, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        from flightlog.compat.rhapsody.telemetry.spans import SESSION, GivenIds, KeptSpans, TaskSpans, open_in

        self._context, self._trace, self._run = context, trace, run
        self._open_in, self._key = open_in, SESSION
        about = {"service.name": "rhapsody", "session_id": session_id}
        self.resource = resource or Resource.create(about)
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider(metric_readers=[self._reader, *metric_readers], resource=self.resource)
        instrument(self._meters.get_meter("rhapsody"), tallies)
        self._given = GivenIds()
        self._tracers = TracerProvider(resource=self.resource, id_generator=self._given)
        self.kept = KeptSpans(span_ended)
        for processor in (self.kept, *span_processors):
            self._tracers.add_span_processor(processor)
        self._tracer = self._tracers.get_tracer("rhapsody")
        if run is not None:
            self._given.give(int(run.info.span_id, 16), int(run.info.trace_id, 16))
        self.session: Any = self._tracer.start_span(
            "session",
            context=context.Context(),
            attributes={"session_id": session_id, "backend": "rhapsody"},
            start_time=int(started_at * 1e9),
        )
        self._ids = self.session.get_span_context()
        if not self._ids.is_valid and run is not None:  # OpenTelemetry is switched off; the run is not
            self._ids = trace.SpanContext(
                int(run.info.trace_id, 16), int(run.info.span_id, 16), is_remote=False
            )
        self.tasks = TaskSpans(self._tracer, self._given, self._ids, enrichers, active)
        self._before: Any = None

    def enter(self) -> None:
        """Let the session's span be the one that is open here, for what else makes spans."""
        self._before = self._context.get_current()
        self._attach(self.session)

    def leave(self) -> None:
        """Let the span be open here that was before; nothing in a context that the session's is not open
        in.
        """
        if self._trace.get_current_span() is self.session:
            self._context.attach(self._before)

    def metrics(self) -> Any:
        """All metrics now."""
        return self._reader.get_metrics_data()

    @contextmanager
    def scope(self, name: str, attributes: Mapping[str, Any]) -> Iterator[None]:
        """A span around what happens inside, in the run too; in the one of this trace that is open here, or
        in the session's.
        """
        inside = None if self._open_in(self._ids) else self._trace.set_span_in_context(self.session)
        if self._run is None:
            with self._opened(name, attributes, inside):
                yield
            return
        with self._run.span(name) as recorded:
            recorded.tags.update(attributes)
            self._given.give(int(recorded.span_id, 16))
            with self._opened(name, attributes, inside):
                yield

    @contextmanager
    def _opened(self, name: str, attributes: Mapping[str, Any], inside: Any) -> Iterator[None]:
        span = self._tracer.start_span(name, context=inside, attributes=dict(attributes))
        token = self._attach(span)
        try:
            yield
        finally:
            self._context.detach(token)
            span.end()

    def _attach(self, span: Any) -> Any:
        """Let a span of this session be the one that is open here; gives what ends that."""
        inside = self._trace.set_span_in_context(span)
        return self._context.attach(self._context.set_value(self._key, self._ids.span_id, inside))

    def annotate(self, event: BaseEvent) -> None:
        """Note an event on the span that is open here, or on the session's."""
        here: Any = self._trace.get_current_span()
        span = here if here.get_span_context().is_valid else self.session
        span.add_event(event.event_type, {name: str(value) for name, value in event.attributes.items()})

    def end(self, now: float) -> None:
        """End the session's span, and those of tasks that were never heard of again."""
        self.tasks.end_all(now)
        self.session.end(int(now * 1e9))

    def shut_down(self) -> None:
        """Let processors and readers finish."""
        self._meters.shutdown()
        self._tracers.shutdown()

"""The bridge to OpenTelemetry inside a program: its spans in Flightlog's runs, and one trace for both.

    import flightlog.otel
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    provider.add_span_processor(flightlog.otel.span_processor())
    trace.set_tracer_provider(provider)

Sending whole runs to a server that speaks OTLP needs none of this: `flightlog export RUN --to otlp`.
"""

from __future__ import annotations

try:
    from opentelemetry.context import get_current
    from opentelemetry.context.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
except ImportError as error:
    from flightlog.core.errors import MissingExtra

    raise MissingExtra(
        f"the bridge to OpenTelemetry needs a package that is not installed ({error.name}): "
        "pip install 'flightlog[otel]'"
    ) from error

from flightlog.record.otel_bridge import Bridge
from flightlog.record.otel_context import context_at, current_place, join_contexts

__all__ = ["current_context", "propagate", "span_processor"]


class _RunProcessor(SpanProcessor):
    """Records the spans of a tracer provider into the run that is current where each starts."""

    def __init__(self) -> None:
        self._bridge = Bridge()

    # The SDK's signature.
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        self._bridge.start(span)

    def on_end(self, span: ReadableSpan) -> None:
        self._bridge.end(span)


def span_processor(*, join_context: bool = True) -> SpanProcessor:
    """A processor for `TracerProvider.add_span_processor` that records every span into the current Flightlog
    run.

    A span keeps its id, its parent if that is in the run, its times, attributes, events and status; open
    spans are visible too. Outside a run nothing is recorded. It never raises and never blocks. `join_context`
    also calls `propagate`.
    """
    if join_context:
        propagate()
    return _RunProcessor()


def propagate() -> bool:
    """Make one trace of both kinds of spans, in this process and from now on; whether that can be done here.

    A span of OpenTelemetry's that starts inside one of ours becomes its child, also in what OpenTelemetry
    exports itself, and carries the run's trace id on into other services. A span of ours inside one that
    `span_processor` records becomes its child. May be called any number of times.
    """
    return join_contexts()


def current_context() -> Context:
    """OpenTelemetry's context with Flightlog's current span in it, for `tracer.start_span(..., context=...)`.

    For single spans as children of Flightlog's without `propagate`. Outside a run it is the current context.
    """
    here = current_place()
    return get_current() if here is None else context_at(here, get_current())

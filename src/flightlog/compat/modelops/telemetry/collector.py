"""What `modelops.telemetry.collector` offers."""

from flightlog.compat.modelops.collector import NOOP_SPAN, NoopSpan, TelemetryCollector, TelemetrySpan

__all__ = ["NOOP_SPAN", "NoopSpan", "TelemetryCollector", "TelemetrySpan"]

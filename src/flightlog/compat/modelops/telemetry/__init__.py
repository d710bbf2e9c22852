"""What `modelops.telemetry` offers."""

from flightlog.compat.modelops.telemetry.collector import (
    NOOP_SPAN,
    NoopSpan,
    TelemetryCollector,
    TelemetrySpan,
)
from flightlog.compat.modelops.telemetry.storage import TelemetryStorage

__all__ = ["NOOP_SPAN", "NoopSpan", "TelemetryCollector", "TelemetrySpan", "TelemetryStorage"]

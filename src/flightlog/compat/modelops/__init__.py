"""ModelOps' telemetry names over Flightlog: change `modelops` to `flightlog.compat.modelops` in the
import.
"""

from flightlog.compat.modelops.telemetry.collector import (
    NOOP_SPAN,
    NoopSpan,
    TelemetryCollector,
    TelemetrySpan,
)
from flightlog.compat.modelops.telemetry.storage import TelemetryStorage

__all__ = ["NOOP_SPAN", "NoopSpan", "TelemetryCollector", "TelemetrySpan", "TelemetryStorage"]

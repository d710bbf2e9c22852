"""What `modelops.telemetry.storage` offers."""

from flightlog.compat.modelops.storage import TelemetryStorage

__all__ = ["TelemetryStorage"]

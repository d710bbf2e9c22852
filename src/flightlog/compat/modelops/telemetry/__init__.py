"""What `modelops.telemetry` offers."""

from flightlog.compat.modelops.telemetry import collector
from flightlog.compat.modelops.telemetry.collector import *  # noqa: F403 - the collector and its spans
from flightlog.compat.modelops.telemetry.storage import TelemetryStorage

__all__ = ["TelemetryStorage"]
__all__ += collector.__all__

"""What `modelops.telemetry` offers."""

from flightlog.compat.modelops.telemetry import collector, query
from flightlog.compat.modelops.telemetry.collector import *  # noqa: F403 - the collector and its spans
from flightlog.compat.modelops.telemetry.query import *  # noqa: F403 - questions to saved jobs
from flightlog.compat.modelops.telemetry.storage import TelemetryStorage

__all__ = ["TelemetryStorage"]
__all__ += query.__all__
__all__ += collector.__all__

"""Telemetry of a session: events, metrics, spans, a file of all of them, and a run of Flightlog's."""

from flightlog.compat.rhapsody.telemetry import events
from flightlog.compat.rhapsody.telemetry.events import *  # noqa: F403 - every event is a name here
from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager, TelemetryReader, TelemetrySubscriber

__all__ = ["TelemetryManager", "TelemetryReader", "TelemetrySubscriber"]
__all__ += events.__all__

"""Telemetry to those who only read it, or only listen."""

from flightlog.compat.rhapsody.telemetry.interfaces.reader import TelemetryReader
from flightlog.compat.rhapsody.telemetry.interfaces.subscriber import TelemetrySubscriber

__all__ = ["TelemetryReader", "TelemetrySubscriber"]

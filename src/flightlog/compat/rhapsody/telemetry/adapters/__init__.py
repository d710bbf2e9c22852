"""Adapters: samplers of the machines that a backend runs on."""

from flightlog.compat.rhapsody.telemetry.adapters.base import TelemetryAdapter
from flightlog.compat.rhapsody.telemetry.adapters.concurrent import ConcurrentTelemetryAdapter
from flightlog.compat.rhapsody.telemetry.adapters.dask import DaskTelemetryAdapter
from flightlog.compat.rhapsody.telemetry.adapters.dragon import DragonTelemetryAdapter

__all__ = ["ConcurrentTelemetryAdapter", "DaskTelemetryAdapter", "DragonTelemetryAdapter", "TelemetryAdapter"]

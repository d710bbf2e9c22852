"""Telemetry of a session: events, metrics, spans, a file of all of them, and a run of Flightlog's."""

from flightlog.compat.rhapsody.telemetry.events import (
    BaseEvent,
    ResourceUpdate,
    SessionEnded,
    SessionStarted,
    TaskCanceled,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    TaskQueued,
    TaskStarted,
    TaskSubmitted,
    define_event,
    make_event,
)
from flightlog.compat.rhapsody.telemetry.manager import TelemetryManager, TelemetryReader, TelemetrySubscriber

__all__ = [
    "BaseEvent",
    "ResourceUpdate",
    "SessionEnded",
    "SessionStarted",
    "TaskCanceled",
    "TaskCompleted",
    "TaskCreated",
    "TaskFailed",
    "TaskQueued",
    "TaskStarted",
    "TaskSubmitted",
    "TelemetryManager",
    "TelemetryReader",
    "TelemetrySubscriber",
    "define_event",
    "make_event",
]
